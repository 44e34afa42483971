"""The subscribers of a stream, as text and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape

from dagster_ckpt.cli.output import amounts
from dagster_ckpt.cli.output.text_layout import new_table, say
from dagster_ckpt.cli.request import Document
from dagster_ckpt.history import SubscriberInfo


def show_subscribers(stream: str, subscribers: Sequence[SubscriberInfo]) -> None:
    """The subscribers of a stream: how far each has read, and what is kept for it."""
    table = new_table("read by", ">up to epoch", ">epochs behind", ">log kept from", "")
    for each in subscribers:
        table.add_row(
            f"[bold]{escape(each.stream)}[/]",
            str(each.read),
            amounts.count(each.lag),
            str(each.kept_from),
            _standing(each),
        )
    say(table if subscribers else f"No stream reads {escape(stream)}.")


def subscribers_document(stream: str, subscribers: Sequence[SubscriberInfo]) -> Document:
    """The subscribers of a stream."""
    return {"stream": stream, "subscribers": [asdict(each) for each in subscribers]}


def show_removed_subscriber(stream: str, name: str) -> None:
    """The removed subscriber."""
    say(f"The change log of [bold]{escape(stream)}[/] is no longer kept for {escape(name)}.")


def removed_subscriber(stream: str, name: str) -> Document:
    """The removed subscriber."""
    return {"stream": stream, "unsubscribed": name}


def _standing(subscriber: SubscriberInfo) -> str:
    if subscriber.gone:
        return "[red]its stream is not in the store[/]"
    if subscriber.ahead:
        return "[red]has read abandoned epochs: roll it back too[/]"
    return "[red]cut off: roll it back to epoch 0[/]" if subscriber.cut_off else ""
