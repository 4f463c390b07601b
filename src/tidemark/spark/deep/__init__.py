"""Deep catch-up: brokers recall history that their pubends have released, and get it from the archive.

The entry is `service.DeepService`, which `thread.DeepThread` runs beside other work. The service gathers
recalls that arrive together into a `shared_scan.SharedScan`, one `request.Request` for each recall. A scan is
read in waves: `plan.slices` cuts what is wanted into slices, `waves.read_wave` runs `slice_reader.read_slice`
for each of them, here or on Spark, and each slice writes the events that anyone wants into a file of the
`spool`. Requests then answer their subscribers from the spool, each at its own pace. `tasks` has what travels
to Spark tasks and back.
"""
