"""thalweg run | compare | list | show"""
