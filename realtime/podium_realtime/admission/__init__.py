"""Admission control of periodic tasks on a GPU, by a schedulability test."""
