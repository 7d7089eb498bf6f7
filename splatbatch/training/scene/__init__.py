"""The merged scene in this process: drawn block by block, measured on photographs and across its seams."""
