"""A pushed token passes google-auth, as a receiver would verify it, by the machine's clock."""

from __future__ import annotations

import google.auth.transport.requests
import pytest
import requests
from google.oauth2 import id_token

from pubsub_aio.emulator import EmulatorThread
from tests.emulator.push_endpoint import Endpoint

EMAIL = "pusher@project.iam.gserviceaccount.com"


def test_google_auth_verifies_a_pushed_token() -> None:
    with Endpoint() as endpoint, EmulatorThread() as emulator, EmulatorThread() as stranger:
        push_config = {
            "push_endpoint": endpoint.url,
            "oidc_token": {"service_account_email": EMAIL},
        }
        emulator.create_subscription("worker", "orders", push_config=push_config)
        emulator.publish("orders", b"a")
        (pushed,) = endpoint.wait_for(1)
        token = str(pushed.header("Authorization")).removeprefix("Bearer ")

        def verify(address: str, audience: str) -> object:
            certs = f"http://{address}/oauth2/v3/certs"
            with requests.Session() as session:
                request = google.auth.transport.requests.Request(session)
                return id_token.verify_token(token, request, audience, certs_url=certs)["email"]

        assert verify(emulator.address, endpoint.url) == EMAIL
        with pytest.raises(Exception, match=r"[Aa]udience"):
            verify(emulator.address, "somebody else")
        with pytest.raises(Exception, match="signing key"):
            verify(stranger.address, endpoint.url)
