"""OIDC tokens of push requests, verified by libraries that know nothing of us."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import jwt
import pytest
from google.pubsub_v1 import PubsubMessage

from tests.emulator.conformance.marks import embedded_only, google_falls_short
from tests.emulator.conformance.servers import Server
from tests.emulator.conformance.streams import WITHIN
from tests.emulator.push_endpoint import Endpoint

EMAIL = "pusher@project.iam.gserviceaccount.com"
CERTS = "oauth2/v3/certs"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        yield endpoint


def token_of(server: Server, endpoint: Endpoint, **token: str) -> str:
    """Let a message be pushed with a token; returns the token."""
    push_config = {
        "push_endpoint": endpoint.url,
        "oidc_token": {"service_account_email": EMAIL, **token},
    }
    topic, subscription = server.create_pair(push_config=push_config)
    pushed = len(endpoint.requests)
    server.publish(topic, "a")
    scheme, _, sent = str(endpoint.wait_for(pushed + 1)[-1].header("Authorization")).partition(" ")
    endpoint.settle(server, subscription)
    assert scheme == "Bearer"
    return sent


def claims_of(server: Server, token: str, audience: str) -> dict[str, Any]:
    """What a token says, if the key that the server publishes has signed it."""
    keys = jwt.PyJWKClient(f"http://{server.address}/{CERTS}", timeout=WITHIN)
    claims: dict[str, Any] = jwt.decode(
        token,
        keys.get_signing_key_from_jwt(token),
        algorithms=["RS256"],
        audience=audience,
        issuer="https://accounts.google.com",
        options={"verify_exp": False, "verify_iat": False},  # its time is virtual
    )
    return claims


@google_falls_short("sends none")
def test_push_oidc_token_sends_bearer_jwt(server: Server, endpoint: Endpoint) -> None:
    token = token_of(server, endpoint, audience="me")
    claims = claims_of(server, token, "me")
    subject, issued = claims.pop("sub"), claims.pop("iat")

    assert jwt.get_unverified_header(token).keys() == {"alg", "kid", "typ"}
    assert claims == {
        "aud": "me",
        "azp": subject,
        "email": EMAIL,
        "email_verified": True,
        "exp": issued + 3_600,
        "iss": "https://accounts.google.com",
    }
    assert subject.isdecimal()
    assert issued == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@google_falls_short("sends none")
def test_push_oidc_audience_is_the_endpoint_unless_given(
    server: Server, endpoint: Endpoint
) -> None:
    token = token_of(server, endpoint)

    assert claims_of(server, token, endpoint.url)["aud"] == endpoint.url
    with pytest.raises(jwt.InvalidAudienceError):
        claims_of(server, token, "somebody else")


@google_falls_short("sends none")
def test_push_oidc_token_that_was_changed_does_not_pass(server: Server, endpoint: Endpoint) -> None:
    head, claims, signature = token_of(server, endpoint).split(".")
    changed = ("B" if claims[9] == "A" else "A").join((claims[:9], claims[10:]))

    with pytest.raises(jwt.InvalidTokenError):
        claims_of(server, f"{head}.{changed}.{signature}", endpoint.url)


@google_falls_short("sends none")
def test_push_oidc_token_is_renewed_before_it_expires(server: Server, endpoint: Endpoint) -> None:
    first = token_of(server, endpoint, audience="me")
    server.let_time_pass(2_999)
    assert token_of(server, endpoint, audience="me") == first
    server.let_time_pass(1)
    second = token_of(server, endpoint, audience="me")

    issued = [claims_of(server, token, "me")["iat"] for token in (first, second)]
    assert issued[1] - issued[0] == 3_000


@google_falls_short("sends none")
def test_push_oidc_token_is_another_for_another_audience(
    server: Server, endpoint: Endpoint
) -> None:
    for audience in ("me", "you"):
        token = token_of(server, endpoint, audience=audience)
        assert claims_of(server, token, audience)["aud"] == audience


@google_falls_short("sends none")
def test_push_oidc_token_wins_over_an_attribute(server: Server, endpoint: Endpoint) -> None:
    push_config = {
        "push_endpoint": endpoint.url,
        "oidc_token": {"service_account_email": EMAIL},
        "no_wrapper": {"write_metadata": True},
    }
    topic, _ = server.create_pair(push_config=push_config)
    server.publish(topic, PubsubMessage(data=b"a", attributes={"authorization": "mine"}))
    (pushed,) = endpoint.wait_for(1)
    sent = [value for name, value in pushed.headers.items() if name.lower() == "authorization"]

    assert len(sent) == 1
    assert sent[0].startswith("Bearer ey")


@embedded_only("Google's signs nothing")
def test_openid_configuration_points_to_the_keys(server: Server) -> None:
    url = f"http://{server.address}/.well-known/openid-configuration"
    with urllib.request.urlopen(url, timeout=WITHIN) as response:
        configuration = json.load(response)
    assert configuration["issuer"] == "https://accounts.google.com"
    with urllib.request.urlopen(configuration["jwks_uri"], timeout=WITHIN) as response:  # noqa: S310
        (key,) = json.load(response)["keys"]

    assert (key["kty"], key["alg"], key["use"]) == ("RSA", "RS256", "sig")
    assert "d" not in key
    with urllib.request.urlopen(configuration["jwks_uri"], timeout=WITHIN) as response:  # noqa: S310
        assert json.load(response)["keys"] == [key]


@embedded_only("Google's has no such paths")
def test_paths_of_keys_take_nothing_else(server: Server) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{server.address}/{CERTS}", b"{}", timeout=WITHIN)
    with refused.value as response:
        assert response.status == 404
