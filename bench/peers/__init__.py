"""
Brambling and other systems side by side, on the same data, in an environment of their own.

The command (`command`) makes that environment (`environment`) and goes on in it. For a workload (`workloads`) it makes the data
(`data`), starts a process for each system (`worker`, held by `process`), compares what they find (`agreement`), lets
them run in turn (`rounds`) and tells what it took (`report`). What each system does stands in `systems`, one module each.
"""
