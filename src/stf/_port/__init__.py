"""The words that engine, recordings and backends share: event, replica, program, port."""
