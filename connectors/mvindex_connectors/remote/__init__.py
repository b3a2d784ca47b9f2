"""An index behind a server: clients, and what they share with the server: messages, errors, addresses."""
