"""What the user's own repository offers: ignore rules, and an index to start from."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from repotrace.config import find_repository
from repotrace.system.git import GitError
from repotrace.system.snapshots.model import Deadline
from repotrace.system.snapshots.plumbing import AS_ARGUMENTS, run_git

type Signature = tuple[tuple[str, tuple[int, int, int] | None], ...]

_CONVERTING = (b"ident", b"filter", b"working-tree-encoding")


@dataclass(frozen=True, slots=True)
class UserRepository:
    """The repository that the workspace belongs to. Only ever read."""

    top: Path
    git_dir: Path
    common_dir: Path
    config: Mapping[str, str]

    @classmethod
    def discover(cls, workspace: Path, deadline: Deadline) -> UserRepository | None:
        """The repository around `workspace`; None if there is none that git would use."""
        found = find_repository(workspace)
        if found is None:
            return None
        try:
            settings = run_git(["config", "-z", "--list"], found.root, deadline=deadline)
        except GitError:
            return None
        config = {}
        for item in os.fsdecode(settings).split("\0"):
            key, _, value = item.partition("\n")
            config[key] = value
        return cls(found.root, found.git_dir, found.common_dir, config)

    def _git(
        self, args: Sequence[str | bytes], cwd: Path, deadline: Deadline, stdin: bytes | None = None
    ) -> bytes:
        # A monitor would be a daemon that stays, or a program that the repository names.
        return run_git(["-c", "core.fsmonitor=false", *args], cwd, stdin=stdin, deadline=deadline)

    @property
    def objects(self) -> Path:
        return self.common_dir / "objects"

    def _configured(self, key: str, name: str) -> Path:
        value = self.config.get(key)
        if value is not None:
            return Path(value).expanduser()
        base = os.environ.get("XDG_CONFIG_HOME")
        return (Path(base) if base else Path("~/.config").expanduser()) / "git" / name

    @property
    def exclude_files(self) -> tuple[Path, Path]:
        """Files of ignore patterns outside the work tree, the weaker first."""
        user = self._configured("core.excludesfile", "ignore")
        return user, self.common_dir / "info" / "exclude"

    @property
    def attribute_files(self) -> tuple[Path, ...]:
        user = self._configured("core.attributesfile", "attributes")
        return (Path("/etc/gitattributes"), user, self.common_dir / "info" / "attributes")

    @property
    def sources(self) -> tuple[Path, ...]:
        """Every file whose change would change the ignore rules."""
        base = os.environ.get("XDG_CONFIG_HOME")
        xdg = (Path(base) if base else Path("~/.config").expanduser()) / "git" / "config"
        config = (self.common_dir / "config", Path("~/.gitconfig").expanduser(), xdg)
        return (*config, *self.exclude_files)

    def seedable(self) -> bool:
        """Whether the store can share objects with this repository."""
        same_hash = self.config.get("extensions.objectformat", "sha1") == "sha1"
        return same_hash and b"\n" not in os.fsencode(self.objects)

    def ignored(self, folder: Path, paths: Iterable[bytes], deadline: Deadline) -> set[bytes]:
        """Those of `paths`, relative to `folder`, that the rules of this repository exclude."""
        wanted = sorted(paths)
        if not wanted:
            return set()
        command = ["ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--"]
        few = wanted if len(wanted) <= AS_ARGUMENTS else []
        return set(self._git([*command, *few], folder, deadline).split(b"\0")) - {b""}

    def converted(
        self, entries: Sequence[bytes], attribute_paths: Iterable[bytes], deadline: Deadline
    ) -> set[bytes]:
        """Those tracked paths whose content in git may differ from the bytes in the work tree."""
        texts = []
        for path in (*(self.top / os.fsdecode(p) for p in attribute_paths), *self.attribute_files):
            with suppress(OSError):
                texts.append(path.read_bytes())
        attributes = b"\n".join(texts)
        converts_ends = self.config.get("core.autocrlf", "false") not in {"false", "no", "off", "0"}
        if not converts_ends and not attributes.strip():
            return set()
        found = set()
        if any(word in attributes for word in _CONVERTING):
            found |= self._attributed(entries, deadline)
        if converts_ends or any(w in attributes for w in (b"text", b"eol", b"crlf", b"binary")):
            found |= self._with_other_line_ends(deadline)
        return found

    def _attributed(self, entries: Sequence[bytes], deadline: Deadline) -> set[bytes]:
        names = [os.fsdecode(name) for name in _CONVERTING]
        text = b"".join(path + b"\0" for path in entries)
        out = self._git(["check-attr", "-z", "--stdin", *names], self.top, deadline, text)
        fields = out.split(b"\0")
        inert = {b"unspecified", b"unset"}
        return {fields[i] for i in range(0, len(fields) - 2, 3) if fields[i + 2] not in inert}

    def _with_other_line_ends(self, deadline: Deadline) -> set[bytes]:
        out = self._git(["ls-files", "-z", "--eol"], self.top, deadline)
        found = set()
        for line in out.split(b"\0"):
            info, _, path = line.partition(b"\t")
            fields = info.split()
            if len(fields) < 3:
                continue
            raw = fields[2] == b"attr/-text"
            plain = fields[1] in {b"w/lf", b"w/none"} and b"eol=crlf" not in info
            binary = fields[:2] == [b"i/-text", b"w/-text"] and fields[2] != b"attr/text"
            if not (raw or plain or binary):
                found.add(path)
        return found


def signature(paths: Iterable[str]) -> Signature:
    """What tells whether any of these files was changed, made or removed."""
    result: list[tuple[str, tuple[int, int, int] | None]] = []
    for path in paths:
        try:
            info = os.stat(path)  # noqa: PTH116 - on the hot path
        except OSError:
            result.append((path, None))
        else:
            # Of a repository's folder only the identity: git writes there all the time.
            moving = stat.S_ISDIR(info.st_mode)
            times = (0, 0) if moving else (info.st_mtime_ns, info.st_size)
            result.append((path, (*times, info.st_ino)))
    return tuple(result)
