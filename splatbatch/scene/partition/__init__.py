"""Cuts a big scene into patches (`splatbatch split`): the box of each patch, and the values that all patches share."""
