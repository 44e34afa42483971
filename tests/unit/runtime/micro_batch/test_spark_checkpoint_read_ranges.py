"""What a micro-batch has read, as errors name it."""

from dagster_ckpt.protocol.manifest.manifest import FileSeen, SourceIdentity, SourcePosition
from dagster_ckpt.runtime.micro_batch.spark_checkpoint import Advance, read_ranges


def test_offsets_and_files_are_named_and_many_files_are_counted() -> None:
    kafka = SourcePosition(SourceIdentity("kafka", ""), '{"trips":{"0":100,"1":7}}')
    new = SourcePosition(SourceIdentity("kafka", ""), initial='v1\n{"trips":{"0":5}}')
    files = SourcePosition(SourceIdentity("json", "file:/in"))
    seen = tuple(FileSeen(f"file:/in/{number}.json", 1) for number in range(5))
    advances = [
        Advance('{"trips":{"0":150,"1":7,"2":3}}', None, ()),
        Advance('{"trips":{"0":6}}', None, ()),
        Advance("4", None, seen),
    ]
    assert read_ranges([kafka, new, files], advances) == (
        "trips-0 offsets 100 to 149; trips-2 offsets 0 to 2; trips-0 offsets 5 to 5; file:/in/0.json; file:/in/1.json; "
        "file:/in/2.json; 2 more files"
    )
    assert read_ranges([SourcePosition(SourceIdentity("rate", ""))], [Advance("7", None, ())]) == ""
