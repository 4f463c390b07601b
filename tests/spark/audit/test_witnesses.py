"""The single-process audit says of each witness what a person says; `test_on_spark` asks Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.audit.ledger_samples import write_ledger
from tests.spark.audit.ledger_witnesses import WITNESSES, Witness
from tidemark.lab.processes import ledger as single


@pytest.mark.parametrize("witness", WITNESSES.values(), ids=WITNESSES)
def test_the_single_process_audit_judges_as_a_person_does(witness: Witness, tmp_path: Path) -> None:
    publisher = write_ledger(tmp_path / "w.publisher.jsonl", witness.publisher_lines("w"))
    subscribers = [
        write_ledger(tmp_path / f"{name}.subscriber.jsonl", lines)
        for name, lines in witness.subscriber_lines("w").items()
    ]
    account = single.audit([publisher], subscribers).report().accounts[-1]
    assert (account.keys, account.in_gaps) == (witness.faults("w"), witness.in_gaps)
    assert account.is_clean is (not witness.faults("w"))
