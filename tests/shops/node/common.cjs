// What the shops in JavaScript share: the book of sales, and answers made to order.

const { appendFileSync } = require("node:fs");
const { gzipSync } = require("node:zlib");

const FILE = require("node:path").join(__dirname, "../file.txt");

/** Writes a sale down and returns the text of the answer. */
function sell(request, drop) {
    appendFileSync(process.env.SHOP_SALES, `${request ?? "-"} ${drop}\n`);
    return `sold ${drop}`;
}

/** What the shop saw, as JSON. `incoming` is Node's request. */
function echo(incoming, body) {
    const headers = [];
    for (let at = 0; at < incoming.rawHeaders.length; at += 2) {
        headers.push([incoming.rawHeaders[at], incoming.rawHeaders[at + 1]]);
    }
    const { method, url } = incoming;
    return JSON.stringify({ method, target: url, headers, body: Buffer.from(body).toString("base64") });
}

/** An answer made to order: its status, headers, body and, if it is streamed, pieces. */
function made(text) {
    const { status = 200, headers = [], body = "", times = 1, pieces = 0, gzip = false } = JSON.parse(text);
    let bytes = Buffer.from(body.repeat(times));
    if (gzip) {
        bytes = gzipSync(bytes);
        headers.push(["Content-Encoding", "gzip"]);
    }
    return { status, headers, body: bytes, pieces: pieces ? Array(pieces).fill(bytes) : null };
}

/** The number in a path, as many shops read one. */
function number(text) {
    const drop = Number(text);
    return Number.isInteger(drop) && drop > 0 ? drop : null;
}

module.exports = { FILE, echo, made, number, sell };
