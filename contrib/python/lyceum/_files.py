"""Files of the home directory and of shared folders: listed, uploaded in pieces, downloaded as a stream."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

from ._errors import checked, succeeded
from .core import AuthenticatedClient
from .core.api.files import append_upload, create_folder, finish_upload, list_files, start_upload
from .core.models import FileEntry, NewPath, UploadRequest
from .core.types import UNSET, File

PIECE = 8 * 2**20


class Files:
    """Paths are absolute, `~/x`, or relative to the home directory on the portal's machine."""

    def __init__(self, client: AuthenticatedClient) -> None:
        self._client = client

    def list(self, path: str = "~") -> Iterator[FileEntry]:
        """The entries of a folder, by name."""
        cursor: str | None = None
        while True:
            page = checked(list_files.sync(client=self._client, path=path, limit=500, cursor=cursor or UNSET))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def upload(self, source: str | os.PathLike[str], path: str) -> FileEntry:
        """Uploads a file. It appears under its path when it is complete."""
        with Path(source).open("rb") as file:
            request = UploadRequest(path=path, size_bytes=os.fstat(file.fileno()).st_size)
            upload = checked(start_upload.sync(client=self._client, body=request))
            while upload.offset_bytes < upload.size_bytes:
                file.seek(upload.offset_bytes)
                piece = File(payload=io.BytesIO(file.read(PIECE)))
                upload = checked(
                    append_upload.sync(upload.id, client=self._client, body=piece, upload_offset=upload.offset_bytes)
                )
        return checked(finish_upload.sync(upload.id, client=self._client))

    def download(self, path: str, target: str | os.PathLike[str]) -> Path:
        """Downloads a file. The target is replaced when all of it is there."""
        target = Path(target)
        part = target.with_name(f".{target.name}.part")
        http = self._client.get_httpx_client()
        try:
            with http.stream("GET", "/api/v1/files/content", params={"path": path}) as answer:
                succeeded(answer)
                with part.open("wb") as file:
                    for piece in answer.iter_bytes():
                        file.write(piece)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def make_folder(self, path: str) -> FileEntry:
        """Makes a folder."""
        return checked(create_folder.sync(client=self._client, body=NewPath(path=path)))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Deletes a file, or a folder with all that is in it."""
        answer = self._client.get_httpx_client().delete(
            "/api/v1/files", params={"path": path, "recursive": str(recursive).lower()}
        )
        succeeded(answer)
