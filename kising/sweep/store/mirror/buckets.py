"""A mirror in a bucket of S3, Google Cloud Storage or Azure. The only file that imports obstore.

obstore and not pyarrow's file systems, because only it has conditional writes: those make a lease safe. Credentials
come from the environment, or from the machine's own role, as the providers' documentation says.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from kising.errors import InputError
from kising.sweep.store.mirror.places import ConflictError, UnreachableError

# The copying thread retries by itself, and must not hang in a request while its lease runs out.
_CLIENT = {"timeout": "20s", "connect_timeout": "5s"}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"),
}
_RETRY = {"max_retries": 1, "retry_timeout": timedelta(seconds=10)}


class BucketPlace:
    """Objects below the prefix of a bucket."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
            import obstore.exceptions
            import obstore.store
        except ImportError:
            raise InputError(
                f"--mirror {url}: buckets need one more package: pip install 'kising[mirror]'"
            ) from None
        self._obstore: Any = obstore
        self._errors: Any = obstore.exceptions
        # Somebody who names an endpoint without encryption means it, as in a network of their own.
        named = (os.environ.get(name, "") for name in _ENDPOINTS[url.partition("://")[0]])
        options: Any = {**_CLIENT, "allow_http": any(value.startswith("http://") for value in named)}
        retry: Any = _RETRY
        try:
            self._store: Any = obstore.store.from_url(url, client_options=options, retry_config=retry)
        except Exception as error:
            raise InputError(f"--mirror {url}: {_first_line(error)}") from error

    def get(self, key: str) -> tuple[bytes, str] | None:
        """See `Place`."""
        try:
            found = self._obstore.get(self._store, key)
            return bytes(found.bytes()), _tag(found.meta)
        except FileNotFoundError:
            return None
        except self._errors.BaseError as error:
            raise self._unreachable(error) from error

    def put(self, key: str, data: bytes) -> None:
        """See `Place`."""
        self._put(key, data, "overwrite")

    def create(self, key: str, data: bytes) -> str:
        """See `Place`."""
        return self._put(key, data, "create")

    def replace(self, key: str, data: bytes, tag: str) -> str:
        """See `Place`."""
        e_tag, _, version = tag.partition("\n")
        return self._put(key, data, {"e_tag": e_tag, **({"version": version} if version else {})})

    def remove(self, key: str) -> None:
        """See `Place`."""
        try:
            self._obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except self._errors.BaseError as error:
            raise self._unreachable(error) from error

    def list(self, folder: str) -> set[str]:
        """See `Place`."""
        try:
            pages = self._obstore.list(self._store, folder)
            return {entry["path"].rpartition("/")[2] for page in pages for entry in page}
        except FileNotFoundError:
            return set()
        except self._errors.BaseError as error:
            raise self._unreachable(error) from error

    def _put(self, key: str, data: bytes, mode: Any) -> str:
        try:
            return _tag(self._obstore.put(self._store, key, data, mode=mode, use_multipart=False))
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError) as error:
            raise ConflictError(key) from error
        except (self._errors.BaseError, FileNotFoundError) as error:
            # A bucket that is not there is "not found" to S3; so is an object that was to be replaced.
            if mode not in ("overwrite", "create") and isinstance(error, FileNotFoundError):
                raise ConflictError(key) from error
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> UnreachableError:
        return UnreachableError(_first_line(error))


def _tag(meta: Any) -> str:
    """What tells one content of an object from another: its e_tag, and its version where there are versions."""
    return f"{meta.get('e_tag') or ''}\n{meta.get('version') or ''}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().partition("\n")[0] or type(error).__name__)[:300]
