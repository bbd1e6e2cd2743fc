"""Mailboxes."""

from __future__ import annotations

import email.policy
import mailbox
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import BinaryIO, Literal

from ablate.data.paths import expanded
from ablate.data.sources import TextSource
from store.errors import DataError


class MboxSource(TextSource):
    """The plain text of every message of a mailbox, one document each. Messages without plain text are left out."""

    source: Literal["mbox"] = "mbox"
    path: str
    """The mailbox, relative to the study's file; `~` and `$VARIABLES` are expanded."""
    subject: bool = False
    """Whether a document begins with the message's subject."""

    def documents(self, base: Path) -> Iterator[str]:
        path = expanded(self.path, base)
        if not path.is_file():
            raise DataError(f"path: there is no mailbox {path}")
        for message in mailbox.mbox(path, factory=_parsed, create=False):
            body = message.get_body(("plain",))
            if body is not None:
                yield f"{message['subject']}\n\n" * self.subject + body.get_content()


def _parsed(file: BinaryIO) -> EmailMessage:
    return email.message_from_binary_file(file, policy=email.policy.default)
