"""Where the pages read: a folder, or a cluster. Each source stands behind the protocol of `source`."""
