"""Loads the files of tessera-embed --to into search engines' own clients, for server_test.py.

  python engines.py FILE FOLDER    prints neighbors_in_milvus(FILE, FOLDER) as JSON
"""
import contextlib
import http.server
import json
import pathlib
import sys
import threading


class BulkHandler(http.server.BaseHTTPRequestHandler):
    """Answers a client of OpenSearch or Elasticsearch: it creates indices, and takes bulk requests whose documents fit the index. Like the
    engines, it refuses an unknown field, a vector of another width, a weight of a token that is not positive, and a body without a newline
    at its end."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body):
        content = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("Content-Type", "application/json"), ("Content-Length", len(content)), ("X-Elastic-Product", "Elasticsearch")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"])).decode()

    def do_GET(self):
        self.answer(200, {"version": {"number": "9.0.0", "distribution": "opensearch"}, "tagline": "You Know, for Search"})

    def do_PUT(self):  # elasticsearch's client also sends bulk requests by PUT
        index, _, bulk = self.path.strip("/").partition("/")
        try:
            if bulk:
                self.answer(200, {"took": 1, "errors": False, "items": self.index_all(self.server.indices[index], self.body())})
            else:
                self.server.indices[index] = json.loads(self.body())["mappings"]["properties"]
                self.answer(200, {"acknowledged": True})
        except (AssertionError, KeyError, ValueError) as error:
            self.answer(400, {"error": {"type": type(error).__name__, "reason": str(error)}, "status": 400})

    do_POST = do_PUT

    def index_all(self, fields, text):
        assert "json" in self.headers["Content-Type"], self.headers["Content-Type"]
        assert text.endswith("\n"), "the bulk request must be terminated by a newline"
        lines = [json.loads(line) for line in text.splitlines()]
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            (kind, about), = action.items()
            assert kind == "index" and set(document) <= set(fields), f"{kind}: {sorted(set(document) - set(fields))}"
            for name, value in document.items():
                width, kind_of_field = fields[name].get("dimension", fields[name].get("dims")), fields[name]["type"]
                assert width is None or len(value) == width, f"{name}: {len(value)} instead of {width}"
                weights = value if kind_of_field in ("rank_features", "sparse_vector") else {}
                assert all(weight > 0 and "." not in token for token, weight in weights.items()), name
            self.server.documents[about["_id"]] = document
            items.append({"index": {"_id": about["_id"], "status": 201, "result": "created"}})
        return items


@contextlib.contextmanager
def bulk_server():
    """Runs a server with a BulkHandler. Its `documents` are those that clients have indexed."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), BulkHandler)
    server.indices, server.documents = {}, {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def by_opensearch(file):
    """Loads a file by opensearch-py, once as it is and once by its bulk helper, and returns the documents of both."""
    import opensearchpy
    from opensearchpy import helpers
    out = []
    settings, text = json.loads(file.with_suffix(".index.json").read_text()), file.read_text()
    for load in (lambda client: client.bulk(body=text, index="photos"), lambda client: helpers.bulk(client, actions(text), index="photos")):
        with bulk_server() as server, opensearchpy.OpenSearch([f"http://127.0.0.1:{server.server_port}"]) as client:
            client.indices.create(index="photos", body=settings)
            load(client)
            out.append(dict(server.documents))
    return out


def by_elasticsearch(file):
    """Does the same by elasticsearch's client."""
    import elasticsearch
    from elasticsearch import helpers
    out = []
    settings, text = json.loads(file.with_suffix(".index.json").read_text()), file.read_text()
    for load in (lambda client: client.bulk(operations=text.splitlines(), index="photos"),
                 lambda client: helpers.bulk(client, actions(text), index="photos")):
        with bulk_server() as server, elasticsearch.Elasticsearch(f"http://127.0.0.1:{server.server_port}") as client:
            client.indices.create(index="photos", **settings)
            load(client)
            out.append(dict(server.documents))
    return out


def actions(text):
    """Returns the lines of a bulk file as the actions of bulk helpers."""
    lines = [json.loads(line) for line in text.splitlines()]
    return [{"_op_type": "index", "_id": action["index"]["_id"], "_source": document} for action, document in zip(lines[::2], lines[1::2])]


def neighbors_in_milvus(file, folder):
    """Loads a file into Milvus Lite, and returns for each row the ids, scores and texts of all rows by the inner product with it, the best
    first. Milvus Lite's server lives as long as the process."""
    import milvus_lite  # noqa: F401
    from pymilvus import DataType, MilvusClient
    rows = json.loads(file.read_text())
    sparse = "tokens" in rows[0]
    field = "tokens" if sparse else "embedding"
    for row in rows if sparse else []:  # what MilvusClient.insert takes; the file has the form of the bulk import
        row[field] = dict(zip(row[field]["indices"], row[field]["values"]))
    client = MilvusClient(str(folder / f"{field}.db"))
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    for name in ("key", "text"):
        schema.add_field(name, DataType.VARCHAR, max_length=1000)
    if sparse:
        schema.add_field(field, DataType.SPARSE_FLOAT_VECTOR)
    else:
        schema.add_field(field, DataType.FLOAT_VECTOR, dim=len(rows[0][field]))
    index = client.prepare_index_params()
    index.add_index(field, metric_type="IP", index_type="SPARSE_INVERTED_INDEX" if sparse else "FLAT")
    client.create_collection("photos", schema=schema, index_params=index)
    client.insert("photos", rows)
    hits = client.search("photos", data=[row[field] for row in rows], anns_field=field, limit=len(rows), output_fields=["text"])
    return [[(hit["id"], hit["distance"], hit["entity"]["text"]) for hit in of_row] for of_row in hits]


if __name__ == "__main__":
    print(json.dumps(neighbors_in_milvus(*map(pathlib.Path, sys.argv[1:]))))
