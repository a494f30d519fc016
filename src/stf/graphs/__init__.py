"""What users record: graphs, scopes, loops, branches, replay."""
