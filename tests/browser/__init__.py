"""The dashboard in a real browser: what people see, press and hear, on a site that runs in a process of its own."""
