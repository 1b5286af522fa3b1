"""OIDC tokens for push endpoints, and the public key that they are verified with."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from pubsub_aio.emulator.clock import Clock

ISSUER = "https://accounts.google.com"
CERTS_PATH = "/oauth2/v3/certs"
"""Where the key set is served; Google's is at the same path."""

LIFETIME = 3_600
"""Seconds from a token's issue to its expiry."""

_RENEWED_BEFORE = 600  # seconds before its expiry: no request lasts longer
_MAX_TOKENS = 1_000


class _Key(NamedTuple):
    private: RSAPrivateKey
    id: str


class Tokens:
    """Issues tokens like Google's, signed with a key that is made when first needed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._making = asyncio.Lock()
        self._key: _Key | None = None
        self._issued: dict[tuple[str, str], tuple[float, str]] = {}

    async def token(self, *, email: str, audience: str) -> str:
        """A token that is good for a while, the same one for as long as it is."""
        now = self._clock.now()
        renew_at, token = self._issued.get((email, audience), (now, ""))
        if now < renew_at:
            return token
        if len(self._issued) >= _MAX_TOKENS:
            self._issued.clear()
        key = await self._signing_key()
        token = _signed(key, _claims(email, audience, int(now)))
        self._issued[email, audience] = (now + LIFETIME - _RENEWED_BEFORE, token)
        return token

    async def key_set(self) -> dict[str, object]:
        """The JSON Web Key Set that tokens are verified with."""
        key = await self._signing_key()
        numbers = key.private.public_key().public_numbers()
        jwk = {
            "kty": "RSA",
            "alg": "RS256",
            "use": "sig",
            "kid": key.id,
            "n": _base64(_bytes(numbers.n)),
            "e": _base64(_bytes(numbers.e)),
        }
        return {"keys": [jwk]}

    async def _signing_key(self) -> _Key:
        async with self._making:
            if self._key is None:
                self._key = await asyncio.to_thread(_make_key)
            return self._key


def discovery(host: str) -> dict[str, object]:
    """What an OpenID provider says of itself, for a client that reached us at `host`."""
    return {
        "issuer": ISSUER,
        "jwks_uri": f"http://{host}{CERTS_PATH}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["RS256"],
    }


def _claims(email: str, audience: str, issued_at: int) -> dict[str, object]:
    digest = hashlib.sha256(email.encode()).digest()
    subject = str(10**20 + int.from_bytes(digest) % 10**20)  # of 21 digits, as Google's are
    return {
        "aud": audience,
        "azp": subject,
        "email": email,
        "email_verified": True,
        "exp": issued_at + LIFETIME,
        "iat": issued_at,
        "iss": ISSUER,
        "sub": subject,
    }


def _make_key() -> _Key:
    try:
        # Only now: few need it, and it takes its time to import.
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError as error:
        raise ImportError(
            'the emulator needs cryptography to sign tokens: pip install "pubsub-aio[emulator]"'
        ) from error
    private = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    modulus = _bytes(private.public_key().public_numbers().n)
    return _Key(private, hashlib.sha256(modulus).hexdigest()[:40])


def _signed(key: _Key, claims: dict[str, object]) -> str:
    import json

    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    header = {"alg": "RS256", "kid": key.id, "typ": "JWT"}
    said = f"{_base64(json.dumps(header).encode())}.{_base64(json.dumps(claims).encode())}"
    signature = key.private.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{said}.{_base64(signature)}"


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
