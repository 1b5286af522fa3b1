"""The subscriber: messages from the server to callbacks, and what became of them back."""
