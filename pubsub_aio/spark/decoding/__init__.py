"""Messages whose data is JSON, Avro or protobuf as columns; what cannot be decoded is kept."""
