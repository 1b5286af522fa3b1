"""`python -m pubsub_aio` is `pubsub-aio`."""

from pubsub_aio.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
