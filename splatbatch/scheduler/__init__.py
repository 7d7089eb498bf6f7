"""When a task is trained: the loop of one worker, from the queue to the accepted splat."""
