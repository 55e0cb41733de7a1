"""The Ray engine: trains clients, or runs the cells of a table, on the machines of a Ray cluster.

Ray is the extra ``thalweg[ray]``. It is imported when a cluster is used.
"""
