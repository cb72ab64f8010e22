"""The demo site: three sample tasks, a page that enqueues them, and `manage.py demo`."""
