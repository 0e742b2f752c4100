"""The wire contract of Frameworks: types, names, encodings and completion codes."""
