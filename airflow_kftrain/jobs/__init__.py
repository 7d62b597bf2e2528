"""What a training job is, as pure data: no SQL, HTTP, asyncio or clock."""
