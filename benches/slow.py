#!/usr/bin/env python3
"""Stands in front of a server and holds each of its answers back: slow.py LISTEN TARGET SECONDS.
A directory that is far away, or busy, looks like this to those who ask it."""

import asyncio
import sys


async def main(listen, target, seconds):
    async def serve(reader, writer):
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", target)

        async def copy(source, sink, pause):
            try:
                while data := await source.read(65536):
                    await asyncio.sleep(pause)
                    sink.write(data)
                    await sink.drain()
            except OSError:
                pass
            sink.close()

        await asyncio.gather(copy(reader, up_writer, 0), copy(up_reader, writer, seconds))

    server = await asyncio.start_server(serve, "127.0.0.1", listen)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
