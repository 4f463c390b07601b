"""A simulated world: machines, links, disks, publishers and subscribers on simulated time."""
