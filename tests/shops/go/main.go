// A shop on Go's net/http, with a method override written by hand as the common handlers have it.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
)

// methodOverride takes the method from a header, the query or a form. ToUpper is Unicode's.
func methodOverride(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/echo") {
			next.ServeHTTP(w, r)
			return
		}
		asked := r.Header.Get("X-HTTP-Method-Override")
		if asked == "" {
			asked = r.FormValue("_method")
		}
		if asked != "" {
			r.Method = strings.ToUpper(asked)
		}
		next.ServeHTTP(w, r)
	})
}

// order sells: POST /limited-drops/{id}/orders.
func order(w http.ResponseWriter, r *http.Request) {
	segments := strings.Split(strings.TrimPrefix(r.URL.Path, "/limited-drops/"), "/")
	if len(segments) != 2 || segments[1] != "orders" || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	drop, err := strconv.Atoi(segments[0])
	if err != nil {
		http.NotFound(w, r)
		return
	}
	book, err := os.OpenFile(os.Getenv("SHOP_SALES"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer book.Close()
	sale := r.Header.Get("X-Case")
	if sale == "" {
		sale = "-"
	}
	fmt.Fprintf(book, "%s %d\n", sale, drop)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "sold %d", drop)
}

// echo tells what the shop saw.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	headers := [][2]string{{"host", r.Host}}
	for name, values := range r.Header {
		for _, value := range values {
			headers = append(headers, [2]string{name, value})
		}
	}
	if r.ContentLength >= 0 {
		headers = append(headers, [2]string{"(length)", strconv.FormatInt(r.ContentLength, 10)})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"method": r.Method, "target": r.RequestURI, "headers": headers, "body": body,
	})
}

// answer answers as the request says.
func answer(w http.ResponseWriter, r *http.Request) {
	spec := struct {
		Status  int         `json:"status"`
		Headers [][2]string `json:"headers"`
		Body    string      `json:"body"`
		Times   int         `json:"times"`
		Pieces  int         `json:"pieces"`
		Gzip    bool        `json:"gzip"`
	}{Status: 200, Times: 1}
	if err := json.Unmarshal([]byte(r.URL.Query().Get("spec")), &spec); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body := bytes.Repeat([]byte(spec.Body), spec.Times)
	if spec.Gzip {
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		_, _ = writer.Write(body)
		_ = writer.Close()
		body = packed.Bytes()
		w.Header().Set("Content-Encoding", "gzip")
	}
	for _, pair := range spec.Headers {
		w.Header().Add(pair[0], pair[1])
	}
	if spec.Pieces == 0 && spec.Status != http.StatusNoContent && spec.Status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(spec.Status)
	for piece := 0; piece == 0 || piece < spec.Pieces; piece++ {
		_, _ = w.Write(body)
		if spec.Pieces > 0 {
			w.(http.Flusher).Flush()
		}
	}
}

func main() {
	file := os.Args[2]
	shop := http.NewServeMux()
	shop.HandleFunc("/limited-drops/", order)
	shop.HandleFunc("/echo", echo)
	shop.HandleFunc("/echo/", echo)
	shop.HandleFunc("/answer", answer)
	shop.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) })
	shop.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "open")
	})
	if err := http.ListenAndServe("127.0.0.1:"+os.Args[1], methodOverride(shop)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
