"""Counters: what a broker has done so far, by name. For metrics, and to know that a test went everywhere."""

from __future__ import annotations

#: Everything that is counted, and what it means.
COUNTED = {
    "events_published": "events logged for publishers",
    "publishes_repeated": "batches that were wholly or partly known already, and not logged again",
    "publishes_refused": "batches refused: out of sequence, or no room",
    "sequences_believed": "publishers that knew more than a damaged log about what was acknowledged to them",
    "frames_refused": "frames that could not be handled, and ended the connection that they came over",
    "denied": "requests refused because the client may not make them",
    "access_renewed": "clients that had to connect again because the rules of access have changed",
    "limits_refused": "subscriptions and topics refused because a client has too many",
    "events_matched": "events that matched at least one subscriber here",
    "events_delivered": "events told to subscribers here",
    "events_expired": "events whose validity had passed, and which became silence",
    "silences_told": "silence told to subscribers",
    "gaps_told": "gaps told to subscribers",
    "starts": "subscribers that started at a pubend",
    "changes": "changed selectors that came into force at a pubend",
    "catchups": "catchup streams begun",
    "catchups_slow": "of these, because a live subscriber could not take more",
    "refilters": "ranges matched again because the PFS did not know them",
    "taken_over": "subscribers that came with a token from elsewhere, or from before their time here",
    "remembered": "ranges that the window knew for such subscribers, and that were not fetched",
    "fetches_passed": "fetches passed on towards the broker that hosts the pubend",
    "fetches_repeated": "fetches that came again while they were under way, and were not asked again",
    "answers_late": "answers to fetches that nobody waits for any more",
    "recalls": "ranges asked of the archive for subscribers that come from beyond what pubends hold",
    "switchovers": "catchup streams that reached the constream",
    "tokens_ahead": "subscribers that were ahead of their host",
    "claims": "subscriptions claimed from other brokers",
    "claims_unanswered": "claims for one broker that were told to all, since no answer came",
    "claims_late": "claims answered by one of a higher epoch",
    "holds_in_force": "pubends that held for a subscriber that moved before it came, and were not asked to",
    "moves": "subscriptions let go because another broker has them",
    "fences": "connections that a newer one of the same subscriber ended",
    "nacks_sent": "nack frames sent upstream",
    "nacks_received": "nack frames from downstream",
    "ranges_consolidated": "ranges asked for from below that were being asked for already",
    "answers_cached": "nacks answered, in part or whole, from the window",
    "answers_from_disk": "entries read from the cache on disk for nacks that the window could not answer",
    "cache_writes": "entries written to the cache on disk",
    "events_left_out": "events not sent to a neighbour because nothing behind it wants them",
    "windows_shrunk": "times that a window over its bound let go",
    "windows_full": "first-time knowledge passed on without being remembered",
    "knowledge_overtaken": "first-time knowledge that knowledge of a newer interest had overtaken",
    "answers_unsound": "answers that did not account for what was wanted when this broker attached",
    "nacks_dropped": "nacks on behalf of an interest that was not known here, or not said upstream yet",
    "reroutes": "streams taken from another neighbour than before",
    "returns": "of these, because a better way had come back",
    "routes_changed": "changes of the overlay",
    "former_lives": "frames or introductions of a neighbour's former life, ignored",
    "released": "times that a pubend let ticks go that everyone had released",
    "released_early": "times that policy let ticks go that somebody had not released",
    "logs_expired": "times that a pubend let events go because their validity had passed",
    "ranges_damaged": "ranges that a disk lost, told as L",
    "log_full": "groups of events that found the disk full",
    "clock_back": "times that a pubend's clock was found behind its ticks",
    "interest_said": "interests told to neighbours",
    "interest_covered": "changes of interest that what was told already covers",
    "topics_learnt": "versions of topics learnt",
    "topics_removed": "topics that were removed",
    "topics_unknown": "times that an event waited for its topic's schema",
    "topics_conflicting": "versions of topics learnt that do not fit those known",
}


class Counters(dict[str, int]):
    """counters["nacks_sent"] += 1; every name of COUNTED is there from the start."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COUNTED, 0))
