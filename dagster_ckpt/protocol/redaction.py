"""Redaction of addresses, file paths and messages: a possible secret is found by its place, never by its name.

Possible secrets are the user and password before a host, whatever characters they have, and every value of the
parameters after a path (`?sig=...`, `;password=...`). A rotated token must not make another source, so an address is
kept without its parameters. A file's path keeps a mark in their place, because two files may look alike without them
(`seen_files` distinguishes them).

In the addresses of Azure's stores the container stands before the host. It is part of what is read, and no secret.
"""

import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote

_SCHEME = re.compile(r"(?i)(?:jdbc:)?[a-z][a-z0-9+.-]*://")
_FILES = re.compile(r"(?i)(?:abfss?|file|gs|hdfs|o3fs|ofs|s3[an]?|s?webhdfs|viewfs|wasbs?)://")
"""File systems: after a host with a port, an `@` is one of a path. In other addresses it may be part of a password."""
_AZURE = re.compile(r"(?i)(?:abfss?|wasbs?)://")
_NAME = re.compile(r"[^/?#@:\[\]]*:")
_PORT = re.compile(r"\d{1,5}(?:[/?#,;]|$)")
_BEFORE_HOST = re.compile(r"[^/?#]*@")
_USER_OF_ORACLE = re.compile(r"(?i)(?<=\bjdbc:oracle:thin:)[^\n]*(?=@)")

_PARAMETER = re.compile(r"[?;][^/?;&=@\s]+=")
_PARAMETERS = re.compile(r"[?;][^/?;&=]+=.*", re.DOTALL)
_OF_ONE_STEP = re.compile(r"(\?|%3F)[^/?&=]+=[^/]*", re.IGNORECASE)
_OF_A_URL = re.compile(r"(\?|%3F)[^/?&=]+=.*", re.IGNORECASE | re.DOTALL)
_WEB = re.compile(r"https?://", re.IGNORECASE)

_URL_IN_TEXT = re.compile(r"(?i)\b(?:jdbc:[a-z0-9:+.-]*|[a-z][a-z0-9+.-]*:)/[^\s'\"<>]*|\bjdbc:[^\s'\"<>]+")
_PARAMETERS_IN_TEXT = re.compile(r"(\?|%3F|;)[^/?;&=\s]+=[^\s'\"<>)\]},]*", re.IGNORECASE)
_LOGIN_IN_TEXT = re.compile(r"(?i)(?<=://)[^\s/?#@:'\"<>\[\]]+:(?!\d{1,5}(?:[/?#,;)\s'\"]|$))(?:(?!://)[^\n])*")
"""From a user and a password to the next address or the end of the line: the password may have blanks and quotes."""
_BLANK = re.compile(r"[\s'\"<>]")
_NAMED = re.compile(r"([\w.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;,&\"']+))")
"""A value with its name, as in `password="..."` of JAAS, `AccountKey=...` or `sig=...`."""
_PUBLIC = {"accountname", "database", "dbname", "defaultendpointsprotocol", "host", "port", "user", "username"}
"""Names of values that are no secrets."""
_SECRET_LENGTH = 4
"""A shorter value is a switch or a number, and part of too many words."""

QUERY = "%3F"
"""The mark in a file's path in place of its parameters: the question mark before them, as Spark spells it."""


def redacted_address(address: str) -> str:
    """The address of a source, without user, password and the parameters of a URL."""
    return _PARAMETERS.sub("", _without_user(address))


def redacted_folder(folder: str) -> str:
    """The address of files. A question mark may also be one of a glob pattern, and a semicolon one of a name."""
    return (_OF_A_URL if _WEB.match(folder) else _OF_ONE_STEP).sub("", _without_user(folder))


def user_in(address: str) -> str:
    """The user and password before the host that `redacted_address` removes; empty if there are none."""
    return split_user(address)[1]


def redacted_file(path: str) -> str:
    """The path of one file, as Spark spells it. Each step that had parameters ends in `QUERY` instead."""
    if "?" not in path and "%3" not in path and "@" not in path:
        return path
    return (_OF_A_URL if _WEB.match(path) else _OF_ONE_STEP).sub(QUERY, _without_user(path))


def redacted_text(text: str) -> str:
    """A message, with each address in it redacted: parameters are shown as `?...`."""
    text = _USER_OF_ORACLE.sub("", _LOGIN_IN_TEXT.sub(_without_login, text))
    return _URL_IN_TEXT.sub(lambda found: _PARAMETERS_IN_TEXT.sub(r"\1...", _without_user(found[0])), text)


def split_user(address: str) -> tuple[str, str, str]:
    """The scheme with its slashes, the user and password, and what follows their `@`: the one parser of all addresses.

    A password may have any character, unescaped too. So it ends at the last `@` before the parameters; with one among
    the parameters as well it cannot be known where it ends, and all is taken for the user and password.
    """
    found = _SCHEME.match(address)
    if found is None:
        return "", "", address
    scheme, rest = found[0], address[found.end() :]
    first = _PARAMETER.search(rest)
    head = rest[: first.start()] if first else rest
    name = _NAME.match(rest)
    has_port = name is not None and _PORT.match(rest, name.end()) is not None
    if name and not has_port and "@" in rest[len(head) :]:
        return scheme, rest, ""
    if name and not (has_port and _FILES.match(scheme)):
        end = head.rfind("@") + 1
    elif _AZURE.match(scheme):
        end = 0
    else:
        before = _BEFORE_HOST.match(head)
        end = before.end() if before else 0
    return scheme, rest[: max(end - 1, 0)], rest[end:]


def escape_user(address: str) -> str:
    """The address with the special characters of user and password escaped, so that every library parses it alike."""
    scheme, user, rest = split_user(address)
    if not user or not rest:
        return address
    name, colon, password = user.partition(":")
    return f"{scheme}{_escape(name)}{colon}{_escape(password)}@{rest}"


def secret_parts(value: str) -> set[str]:
    """A value that may be a secret, and the parts of it that may appear alone, in each spelling.

    Such as the password of an address or of a DSN, and the values of an address's parameters.
    """
    user = split_user(value)[1].partition(":")[0]
    return {spelled for part in (value, user, *_named_parts(value)) for spelled in _spellings(part)}


def secret_parts_within(value: str) -> set[str]:
    """The same of an address that may itself be shown."""
    return {spelled for part in _named_parts(value) for spelled in _spellings(part)}


def without_parts(text: str, parts: Iterable[str], instead: str) -> str:
    """The text with something else instead of each of these parts, the longest first."""
    for part in sorted({each for each in parts if len(each) >= _SECRET_LENGTH}, key=len, reverse=True):
        text = text.replace(part, instead)
    return text


def shown_messages(error: BaseException | None) -> Iterator[str]:
    """The message of an error, and those of its causes that a traceback shows."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _named_parts(value: str) -> Iterator[str]:
    _, user, rest = split_user(value)
    if user:
        yield user
        yield user.partition(":")[2]
    for found in _NAMED.finditer(value if not user else rest):
        if found[1].lower() not in _PUBLIC:
            yield found[found.lastindex or 0]


def _spellings(part: str) -> Iterator[str]:
    for each in (part, unquote(part)):
        yield from (each, quote(each), quote(each, safe=""), quote_plus(each), _escape(each))
        yield from (repr(each)[1:-1], json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])


def _escape(text: str) -> str:
    """Percent codes of special characters; codes that are there stay."""
    return re.sub(r"%(?![0-9A-Fa-f]{2})|[^%A-Za-z0-9._~!$&'()*+,;=-]", lambda found: quote(found[0], safe=""), text)


def _without_login(found: re.Match[str]) -> str:
    """What follows the last `@`, if it follows a blank. Else an address is whole, and `split_user` finds it."""
    text, blank = found[0], _BLANK.search(found[0])
    at = text.rfind("@")
    if blank is None or at < blank.start():
        return text
    return "..." if _PARAMETER.search(text, 0, at) else text[at + 1 :]


def _without_user(address: str) -> str:
    scheme, _, rest = split_user(address)
    return _USER_OF_ORACLE.sub("", scheme + rest)
