<?php
// A shop with a front controller, for PHP's built-in server: every request runs this file.
//
// It takes the path from the headers that IIS and its followers set, and the method from a header, the query or a form.
// As a rewriting `index.php?id=$1` with the query appended does, it takes the id from the query where that has one.

function header_of(string $name): ?string {
    return $_SERVER['HTTP_' . strtoupper(strtr($name, '-', '_'))] ?? null;
}

$target = header_of('X-Original-URL') ?? header_of('X-Rewrite-URL') ?? $_SERVER['REQUEST_URI'];
[$path, $query] = array_pad(explode('?', $target, 2), 2, '');
$path = rawurldecode($path);
$method = header_of('X-HTTP-Method-Override') ?? header_of('X-Method-Override') ?? $_REQUEST['_method'] ?? $_SERVER['REQUEST_METHOD'];
$method = strtoupper($method);

if (preg_match('~^/limited-drops/([^/]+)/orders/?$~i', $path, $found)) {
    // The rewritten query, then the one that came: PHP keeps the last.
    parse_str("id=$found[1]&$query", $parameters);
    $drop = (int) (is_string($parameters['id']) ? $parameters['id'] : 0);
    if ($method !== 'POST' || $drop <= 0) {
        http_response_code(404);
        return;
    }
    file_put_contents(getenv('SHOP_SALES'), (header_of('X-Case') ?? '-') . " $drop\n", FILE_APPEND);
    http_response_code(201);
    header('Content-Type: text/plain');
    echo "sold $drop";
} elseif ($path === '/echo' || str_starts_with($path, '/echo/')) {
    $headers = [];
    foreach (getallheaders() as $name => $value) {
        $headers[] = [$name, $value];
    }
    header('Content-Type: application/json');
    echo json_encode([
        'method' => $_SERVER['REQUEST_METHOD'],
        'target' => $_SERVER['REQUEST_URI'],
        'headers' => $headers,
        'body' => base64_encode(file_get_contents('php://input')),
    ], JSON_INVALID_UTF8_SUBSTITUTE);
} elseif ($path === '/answer') {
    $spec = json_decode($_GET['spec'], true);
    http_response_code($spec['status'] ?? 200);
    foreach ($spec['headers'] ?? [] as [$name, $value]) {
        header("$name: $value", strtolower($name) === 'content-type');
    }
    $body = str_repeat($spec['body'] ?? '', $spec['times'] ?? 1);
    if ($spec['gzip'] ?? false) {
        $body = gzencode($body);
        header('Content-Encoding: gzip');
    }
    for ($piece = 0; $piece < max(1, $spec['pieces'] ?? 1); $piece++) {
        echo $body;
        flush();
    }
} elseif ($path === '/file') {
    header('Content-Type: text/plain');
    readfile(__DIR__ . '/../file.txt');
} elseif ($path === '/') {
    echo 'open';
} else {
    http_response_code(404);
}
