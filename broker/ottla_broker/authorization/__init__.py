"""Decides what a principal may do. Pure: what is stored, and where, is not here (`server.store.stored_acls`)."""
