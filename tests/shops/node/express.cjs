// A shop on Express, with method-override.

const express = require("express");
const methodOverride = require("method-override");
const { FILE, echo, made, number, sell } = require("./common.cjs");

const shop = express();

shop.use("/echo", express.raw({ type: () => true, limit: "8mb" }), (request, response) => {
    request.url = request.originalUrl;
    response.type("json").send(echo(request, request.body ?? ""));
});

// From a header, from the query, from a form: as its own page shows, for any method.
shop.use(express.urlencoded({ extended: true }));
for (const name of ["X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override"]) {
    shop.use(methodOverride(name, { methods: null }));
}
shop.use(methodOverride("_method", { methods: null }));
shop.use(
    methodOverride((request) => (request.body && typeof request.body === "object" ? request.body._method : undefined), {
        methods: null,
    }),
);

shop.get("/", (_, response) => response.send("open"));
shop.post("/limited-drops/:drop/orders", (request, response) => {
    const drop = number(request.params.drop);
    if (drop === null) return response.sendStatus(404);
    response.status(201).type("text").send(sell(request.get("X-Case"), drop));
});
shop.all("/answer", (request, response) => {
    const { status, headers, body, pieces } = made(request.query.spec);
    response.status(status);
    for (const [name, value] of headers) response.append(name, value);
    if (!pieces) return response.end(body);
    for (const piece of pieces) response.write(piece);
    response.end();
});
shop.get("/file", (_, response) => response.sendFile(FILE));

shop.listen(Number(process.argv[2]), "127.0.0.1");
