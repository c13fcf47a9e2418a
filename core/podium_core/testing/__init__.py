"""Builders and contracts for tests, and for anyone who writes a policy. Imports nothing that the product does not
have.
"""
