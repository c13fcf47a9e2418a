"""What the dashboard costs with many searches and many browsers."""
