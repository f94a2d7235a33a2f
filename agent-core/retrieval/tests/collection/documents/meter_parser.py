"""Parses radio telegrams of water meters (wireless M-Bus)."""

import struct
from dataclasses import dataclass


class ChecksumError(ValueError):
    """The CRC at the end of a block does not match its content."""


@dataclass
class Telegram:
    manufacturer: str
    serial_number: int
    volume_litres: int
    battery_low: bool


def decode_manufacturer(code: int) -> str:
    """Three letters of five bits each, as EN 13757 packs them."""
    return "".join(chr(((code >> shift) & 0x1F) + 64) for shift in (10, 5, 0))


def crc16_en13757(block: bytes) -> int:
    """Polynomial 0x3D65, complemented at the end."""
    crc = 0
    for byte in block:
        for bit in range(7, -1, -1):
            crc = (crc << 1) ^ (0x3D65 if ((crc >> 15) ^ (byte >> bit)) & 1 else 0)
    return ~crc & 0xFFFF


def parse_telegram(frame: bytes) -> Telegram:
    """Parses a frame and raises ChecksumError for a damaged one."""
    if crc16_en13757(frame[:-2]) != struct.unpack(">H", frame[-2:])[0]:
        raise ChecksumError(f"frame of {len(frame)} bytes is damaged")
    manufacturer, serial_number, volume, status = struct.unpack("<HIIB", frame[2:13])
    return Telegram(decode_manufacturer(manufacturer), serial_number, volume, bool(status & 0x04))
