// A shop on Hono, with its method override.

const { readFileSync } = require("node:fs");
const { serve } = require("@hono/node-server");
const { Hono } = require("hono");
const { methodOverride } = require("hono/method-override");
const { FILE, echo, made, number, sell } = require("./common.cjs");

const shop = new Hono();
shop.use("/limited-drops/*", methodOverride({ app: shop }));
shop.use("/limited-drops/*", methodOverride({ app: shop, header: "X-HTTP-Method-Override" }));
shop.use("/limited-drops/*", methodOverride({ app: shop, query: "_method" }));

shop.get("/", (c) => c.text("open"));
shop.post("/limited-drops/:drop/orders", (c) => {
    const drop = number(c.req.param("drop"));
    return drop === null ? c.notFound() : c.text(sell(c.req.header("X-Case"), drop), 201);
});
const show = async (c) => c.body(echo(c.env.incoming, await c.req.arrayBuffer()), 200, { "Content-Type": "application/json" });
shop.all("/echo", show);
shop.all("/echo/*", show);
shop.all("/answer", (c) => {
    const { status, headers, body, pieces } = made(c.req.query("spec"));
    const none = [204, 205, 304].includes(status);
    return new Response(none ? null : pieces ? ReadableStream.from(pieces) : body, { status, headers });
});
shop.get("/file", (c) => c.body(readFileSync(FILE)));

serve({ fetch: shop.fetch, hostname: "127.0.0.1", port: Number(process.argv[2]) });
