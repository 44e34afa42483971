"""Redaction of addresses, file paths and messages: a possible secret is found by its place, never by its name.

Possible secrets are the user and password before a host, and every value of the parameters after a path (`?sig=...`,
`;password=...`). A rotated token must not make another source, so an address is kept without its parameters. A file's
path keeps a mark in their place, because two files may look alike without them (`seen_files` distinguishes them).

In the addresses of Azure's stores the container stands before the host. It is part of what is read, and no secret.
"""

import re

_CONTAINER = r"(?:abfss?|wasbs?)"
_USER = re.compile(r"(?i)(?<=://)(?<!\babfs://)(?<!\bwasb://)(?<!\babfss://)(?<!\bwasbs://)[^/?#\s'\"]*@")
_USER_OF_AZURE = re.compile(rf"(?i)\b({_CONTAINER}://)[^/?#@\s'\"]*:[^/?#\s'\"]*@")
_CONTAINER_BEFORE_HOST = re.compile(rf"(?i)^({_CONTAINER}://)[^/]*@")
_USER_OF_ORACLE = re.compile(r"(?i)(?<=\bjdbc:oracle:thin:)[^@\s'\"]*(?=@)")

_PARAMETERS = re.compile(r"[?;][^/?;&=]+=.*", re.DOTALL)
_OF_ONE_STEP = re.compile(r"(\?|%3F)[^/?&=]+=[^/]*", re.IGNORECASE)
_OF_A_URL = re.compile(r"(\?|%3F)[^/?&=]+=.*", re.IGNORECASE | re.DOTALL)
_WEB = re.compile(r"https?://", re.IGNORECASE)

_URL_IN_TEXT = re.compile(r"(?i)\b(?:jdbc:[a-z0-9:+.-]*|[a-z][a-z0-9+.-]*:)/[^\s'\"<>]*|\bjdbc:[^\s'\"<>]+")
_PARAMETERS_IN_TEXT = re.compile(r"(\?|%3F|;)[^/?;&=\s]+=[^\s'\"<>)\]},]*", re.IGNORECASE)

QUERY = "%3F"
"""The mark in a file's path in place of its parameters: the question mark before them, as Spark spells it."""


def redacted_address(address: str) -> str:
    """The address of a source, without user, password and the parameters of a URL."""
    return _PARAMETERS.sub("", _without_user(address))


def redacted_folder(folder: str) -> str:
    """The address of files. A question mark may also be one of a glob pattern, and a semicolon one of a name."""
    return (_OF_A_URL if _WEB.match(folder) else _OF_ONE_STEP).sub("", _without_user(folder))


def user_of(address: str) -> str:
    """The user and password before the host that `redacted_address` removes; empty if there are none."""
    bare, before = _without_user(address), re.match(r"[a-z][a-z0-9+.-]*://([^/]*)@", address, re.IGNORECASE)
    return before[1] if before and bare != address else ""


def without_container(address: str) -> str:
    """An address in one of Azure's stores as earlier releases kept it: without the container."""
    return _CONTAINER_BEFORE_HOST.sub(r"\1", address)


def redacted_file(path: str) -> str:
    """The path of one file, as Spark spells it. Each step that had parameters ends in `QUERY` instead."""
    if "?" not in path and "%3" not in path and "@" not in path:
        return path
    return (_OF_A_URL if _WEB.match(path) else _OF_ONE_STEP).sub(QUERY, _without_user(path))


def redacted_text(text: str) -> str:
    """A message, with each address in it redacted: parameters are shown as `?...`."""
    return _URL_IN_TEXT.sub(lambda found: _PARAMETERS_IN_TEXT.sub(r"\1...", _without_user(found[0])), text)


def _without_user(address: str) -> str:
    return _USER_OF_ORACLE.sub("", _USER_OF_AZURE.sub(r"\1", _USER.sub("", address)))
