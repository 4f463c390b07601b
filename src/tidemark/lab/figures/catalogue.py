"""Catalogue: every experiment that `tidemark lab` knows."""

from __future__ import annotations

from tidemark.lab.figures import idle, virtual_brokers
from tidemark.lab.figures.dsn02 import figures as dsn02
from tidemark.lab.figures.dsn02 import overhead
from tidemark.lab.figures.dsn02 import real as dsn02_real
from tidemark.lab.figures.dsn02 import simulated as dsn02_simulated
from tidemark.lab.figures.dsn03 import auto_acknowledge, caches, client_rates, hops, real_hops, scaling
from tidemark.lab.figures.dsn03 import figures as dsn03
from tidemark.lab.figures.dsn03 import real as dsn03_real
from tidemark.lab.figures.dsn03 import simulated as dsn03_simulated
from tidemark.lab.figures.experiment import Experiment, prose
from tidemark.lab.figures.mops import figures as mops
from tidemark.lab.figures.mops import models
from tidemark.lab.figures.scalability import hot_cold, workers, writes

SIMULATED = """
A publisher hosting and a subscriber hosting broker, four pubends, 800 events a second, and each subscriber
wants a quarter of them, as in the paper. Links take 1 ms, a sync up to 20 ms and a read up to 5 ms; computing
takes no time. What subscribers got was checked: every event once and in order.
"""
OFTEN = """
There are 40 subscribers, about half as many as in the paper, and each is away for 5 s a minute, in the paper
of five minutes. The run takes 100 s.
"""
REAL = """
A publisher hosting and a subscriber hosting broker, four pubends, 800 events a second, and each subscriber
wants a quarter of them, as in the paper; with fewer subscribers. Brokers are processes on one machine, all
clients are in another process on it. What subscribers got was checked: every event once and in order.
"""
CRASH_SIMULATED = "There are 40 subscribers, as in the paper, and the broker is down for 25 s, as there. "
CRASH = "Subscribers return when the constream has got all that it missed."

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (
        Experiment(
            "dsn03-disconnections",
            "DSN'03 figures 5, 6: subscribers come and go; how long catching up takes, how far all is",
            prose(SIMULATED + OFTEN),
            (dsn03.FIGURE_5, dsn03.FIGURE_6),
            dsn03_simulated.coming_and_going,
            dsn03_real.coming_and_going,
            prose(REAL),
        ),
        Experiment(
            "dsn03-crash",
            "DSN'03 figure 7: the subscriber hosting broker is down; latest_delivered and released",
            prose(SIMULATED + CRASH_SIMULATED + CRASH),
            (dsn03.FIGURE_7,),
            dsn03_simulated.crash,
            dsn03_real.crash,
            prose(REAL + CRASH),
            (client_rates.FIGURE,),
        ),
        Experiment(
            "dsn03-scaling",
            "DSN'03 figure 4: more hosts for more subscribers, with and without disconnections",
            prose(scaling.METHOD),
            (scaling.FIGURE,),
            None,
            scaling.measure,
        ),
        Experiment(
            "dsn03-auto-acknowledge",
            "DSN'03 section 5.2: a commit for each event, with few and with many subscribers",
            prose(auto_acknowledge.METHOD),
            (auto_acknowledge.FIGURE,),
            None,
            auto_acknowledge.measure,
        ),
        Experiment(
            "dsn03-hops",
            "DSN'03 section 5: latency over five hops, and the share of logging",
            prose(hops.METHOD),
            (),
            hops.measure,
            real_hops.measure,
            prose(real_hops.METHOD),
            real_figures=(real_hops.FIGURE,),
            simulated_figures=(hops.FIGURE,),
        ),
        Experiment(
            "dsn03-caches",
            "DSN'03, future work: caches of several sizes while many catch up; reads of the PFS",
            prose(caches.METHOD),
            (caches.FIGURE,),
            caches.measure,
        ),
        Experiment(
            "mops",
            "MOPS figures 1-5: mobile subscribers on seven brokers; queues against kept events",
            prose(mops.METHOD),
            mops.FIGURES,
            None,
            simulated_in_parts=mops.measure,
        ),
        Experiment(
            "mops-models",
            "MOPS, future work: other ways to roam, and subscribers that want a part of the events",
            prose(models.METHOD),
            (models.FIGURE,),
            models.measure,
        ),
        Experiment(
            "dsn02-link",
            "DSN'02 figure 6: a link stalls and fails; latency and nacks",
            prose(dsn02_simulated.METHOD),
            (dsn02.FIGURE_6,),
            dsn02_simulated.link,
            dsn02_real.link,
            prose(dsn02_real.METHOD),
        ),
        Experiment(
            "dsn02-relay",
            "DSN'02 figure 7: a relay crashes; latency, nacks and how they are consolidated",
            prose(dsn02_simulated.METHOD + dsn02_simulated.CRASH_OF_RELAY),
            (dsn02.FIGURE_7,),
            dsn02_simulated.relay,
            dsn02_real.relay,
            prose(dsn02_real.METHOD),
            simulated_figures=(dsn02.FIGURE_7_RATES,),
        ),
        Experiment(
            "dsn02-publisher",
            "DSN'02 figure 8: the publisher hosting broker crashes; latency and nacks",
            prose(dsn02_simulated.METHOD + dsn02_simulated.CRASH_OF_PUBLISHER),
            (dsn02.FIGURE_8,),
            dsn02_simulated.publisher,
            dsn02_real.publisher,
            prose(dsn02_real.METHOD),
        ),
        Experiment(
            "dsn02-overhead",
            "DSN'02: CPU of exactly-once delivery over best effort",
            prose(overhead.METHOD),
            (overhead.FIGURE,),
            None,
            overhead.measure,
        ),
        Experiment(
            "scalability-writes",
            "Scalability figures 2, 3: 500 to 7,000 subscribers, cut-through writes on and off",
            prose(writes.METHOD),
            (writes.FIGURE,),
            None,
            writes.measure,
        ),
        Experiment(
            "scalability-sockets",
            "Scalability figure 4: hot and cold connections on one list of sockets, epoll and uvloop",
            prose(hot_cold.METHOD),
            (hot_cold.FIGURE,),
            None,
            hot_cold.measure,
        ),
        Experiment(
            "scalability-workers",
            "Scalability figure 5: what comes in is spread over one, two and three workers, in order",
            prose(workers.METHOD),
            (workers.FIGURE,),
            None,
            workers.measure,
        ),
        Experiment(
            "virtual-brokers",
            "The overlay: two brokers of one process behind one connection",
            prose(virtual_brokers.METHOD),
            (virtual_brokers.FIGURE,),
            virtual_brokers.measure,
        ),
        Experiment(
            "idle-links",
            "The overlay: what links carry while nothing happens, and its bound",
            prose(idle.METHOD),
            (idle.FIGURE,),
            idle.measure,
        ),
    )
}
