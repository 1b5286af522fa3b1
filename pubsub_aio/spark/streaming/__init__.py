"""The source and the sink of Structured Streaming, and the log that the source stands on."""
