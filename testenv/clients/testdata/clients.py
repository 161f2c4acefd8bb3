"""Clients of Python, each with its own way to find authorities and addresses."""

import asyncio
import socket
import ssl
import time
import urllib.request

import aiohttp
import httpx
import requests


def with_urllib(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


def with_requests(url):
    return requests.get(url, timeout=20).text


def with_httpx(url):
    return httpx.get(url, timeout=20).text


def with_aiohttp(url):
    async def get():
        # aiohttp takes the system's authorities unless it is told others.
        async with aiohttp.ClientSession(trust_env=True) as session:
            async with session.get(url, ssl=ssl.create_default_context()) as answer:
                return await answer.text()

    return asyncio.run(get())


for name, get in {"urllib": with_urllib, "requests": with_requests, "httpx": with_httpx, "aiohttp": with_aiohttp}.items():
    for url in "https://api.example/", "http://api.example/", "https://key.example/":
        print(name, url, get(url))
    began = time.monotonic()
    try:
        print(name, get("https://other.example/"))
    except Exception:
        print(name, "refused", "at once" if time.monotonic() - began < 2 else "late")

# The peer is the one that was asked for.
address = socket.getaddrinfo("api.example", 443, type=socket.SOCK_STREAM)[0][4]
with socket.create_connection(address[:2]) as s:
    print("peer", s.getpeername()[:2] == address[:2])
