"""What several processes, also of several hosts, agree on by files alone: who makes one first, and who still lives."""
