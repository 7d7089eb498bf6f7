"""What a batch makes: its tasks, what each depends on, its state, and how long it will take."""
