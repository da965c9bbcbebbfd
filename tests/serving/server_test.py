"""Tests tessera-serve and tessera-embed --to as a user does: with curl, OpenAI's Python client, bad clients and signals.

  python tests/serving/server_test.py build/bin

Without the packages of scripts/setup.sh --clients, the tests that use them are skipped.
"""
import base64
import concurrent.futures
import contextlib
import importlib.util
import json
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.error

import engines
import server as helpers
from server import Server, noise, png, run

PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
CPU = pathlib.Path("/proc/cpuinfo")
PACKS_WEIGHTS = CPU.exists() and {"avx2", "fma"} <= set(CPU.read_text().split())  # rows then have the same bits in every batch
TEXTS = ["a red circle", "a small blue square left of a green triangle", "été"]


def train(name, folder):
    return helpers.train(PROGRAMS, name, folder)


def serve(*arguments, **settings):
    return Server(PROGRAMS, *arguments, **settings)


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.folder = pathlib.Path(cls.stack.enter_context(tempfile.TemporaryDirectory()))
        cls.run_folder = train("sparc", cls.folder / "sparc")
        (cls.folder / "photos").mkdir()
        for i in range(5):
            (cls.folder / f"photos/{i}.png").write_bytes(noise(i))
        (cls.folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
        cls.server = cls.stack.enter_context(serve("--checkpoint", cls.run_folder, "--images", cls.folder / "photos"))

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def image(self, i):
        return base64.b64encode(noise(i)).decode()

    def embedded(self, *arguments):
        """Returns the rows that tessera-embed writes, as bytes."""
        out = self.folder / "embeddings.npy"
        run(PROGRAMS / "tessera-embed", "--checkpoint", self.run_folder, "--threads", "1", "--out", out, *arguments)
        content = out.read_bytes()
        return content[content.index(b"\n") + 1:]

    def test_openai_client(self):
        try:
            import openai
        except ImportError as error:
            self.skipTest(str(error))
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none")
        expected = self.embedded("--texts", self.folder / "texts.txt")
        self.assertEqual([model.id for model in client.models.list()], ["sparc"])
        # Without an encoding, the client asks for base64 and decodes it.
        for encoding in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            found = client.embeddings.create(model="sparc", input=TEXTS, **encoding)
            rows = [item.embedding for item in found.data]
            bits = b"".join(base64.b64decode(row) if isinstance(row, str) else struct.pack(f"<{len(row)}f", *row) for row in rows)
            self.assertEqual(bits, expected)
        self.assertGreater(found.usage.prompt_tokens, len(TEXTS))
        with self.assertRaisesRegex(openai.NotFoundError, "there is no model spark: did you mean sparc"):
            client.embeddings.create(model="spark", input="a")
        short = client.embeddings.create(model="sparc", input="a red circle", dimensions=8).data[0].embedding
        self.assertAlmostEqual(sum(x * x for x in short), 1, places=5)

    def test_image_embeddings_equal_those_of_tessera_embed_to_the_bit(self):
        expected = self.embedded("--images", *(self.folder / f"photos/{i}.png" for i in range(5)))
        url = "data:image/png;base64,"
        forms = [self.image(0), url + self.image(1), {"type": "image_url", "image_url": {"url": url + self.image(2)}},
                 {"image_url": url + self.image(3)}, {"url": self.image(4)}]
        found = self.server.answer("/v1/embeddings", input=forms, modality="image")
        self.assertEqual(b"".join(struct.pack(f"<{len(item['embedding'])}f", *item["embedding"]) for item in found["data"]), expected)
        mixed = self.server.answer("/v1/embeddings", input=["a red circle", url + self.image(0)])
        self.assertEqual([item["index"] for item in mixed["data"]], [0, 1])

    def test_curl(self):
        if shutil.which("curl") is None:
            self.skipTest("there is no curl")
        out = run("curl", "-sS", self.server.url + "/v1/embeddings", "-H", "Content-Type: application/json", "-d", '{"input": "a red circle"}')
        self.assertEqual(len(json.loads(out)["data"][0]["embedding"]), 128)

    def test_similarity_and_classes_agree_with_the_embeddings(self):
        found = self.server.answer("/v1/similarity", images=[self.image(0), self.image(1)], texts=TEXTS)
        images = [item["embedding"] for item in self.server.answer("/v1/embeddings", input=[self.image(0), self.image(1)], modality="image")["data"]]
        texts = [item["embedding"] for item in self.server.answer("/v1/embeddings", input=TEXTS)["data"]]
        for row, image in zip(found["similarity"], images):
            for cosine, text in zip(row, texts):
                self.assertAlmostEqual(cosine, sum(a * b for a, b in zip(image, text)), places=5)
        result = self.server.answer("/v1/classify", images=self.image(0), classes=TEXTS, templates=["{}"], segmentation=True)["results"][0]
        for cell in result["classes"]:
            self.assertAlmostEqual(cell["similarity"], found["similarity"][0][cell["index"]], places=5)
        self.assertEqual(result["classes"], sorted(result["classes"], key=lambda cell: -cell["similarity"]))
        self.assertAlmostEqual(sum(cell["probability"] for cell in result["classes"]), 1, places=5)
        self.assertEqual((result["segmentation"]["rows"], len(result["segmentation"]["classes"])), (8, 64))
        both = self.server.answer("/v1/classify", images=[self.image(1), self.image(0)], classes=TEXTS, templates=["{}"], segmentation=True)
        self.assertEqual(both["results"][1]["segmentation"], result["segmentation"])

    def test_search_finds_the_image_itself_and_returns_it(self):
        found = self.server.answer("/v1/search", image=self.image(3), k=2)["results"]
        self.assertEqual((len(found), pathlib.Path(found[0]["key"]).stem), (2, "3"))
        self.assertAlmostEqual(found[0]["score"], 1, places=5)
        self.assertTrue(self.server.get(f"/v1/images/{found[0]['index']}?side=10").startswith(b"\xff\xd8"))
        by_text = self.server.answer("/v1/search", text="a red circle", k=100)["results"]
        self.assertEqual([hit["score"] for hit in by_text], sorted((hit["score"] for hit in by_text), reverse=True))
        self.assertEqual(len(by_text), 5)
        with self.assertRaises(urllib.error.HTTPError):
            self.server.get("/v1/images/5")

    def test_explain_returns_a_map_for_each_word(self):
        found = self.server.answer("/v1/explain", image=self.image(0), text="a red circle, and a square")
        self.assertEqual([word["word"] for word in found["words"]], ["a", "red", "circle", "and", "a", "square"])
        self.assertEqual(found["words"][2]["span"], [6, 12])
        self.assertEqual({len(word["weights"]) for word in found["words"]}, {found["rows"] * found["columns"]})
        for share, expected in zip(found["part"], (0.2, 0, 0.8, 1), strict=True):  # the middle of 20 x 12 pixels, which is cut at whole pixels
            self.assertAlmostEqual(share, expected, delta=0.005)
        self.assertIn("sparc", found["rule"])

    def test_bad_requests_get_one_line(self):
        big = base64.b64encode(png(50_000, 50_000)).decode()
        cases = [("/v1/embeddings", b"{", 400, "not valid JSON"), ("/v1/embeddings", b"\xff{}", 400, "not valid JSON"),
                 ("/v1/embeddings", {"input": "a", "text": 1}, 400, "unknown field text"),
                 ("/v1/embeddings", {"input": []}, 400, "input: is empty"), ("/v1/embeddings", {}, 400, "input is missing"),
                 ("/v1/embeddings", {"input": [1, 2]}, 400, "token ids are not taken"),
                 ("/v1/embeddings", {"input": ["a"] * 257}, 400, "at most 256"),
                 ("/v1/embeddings", {"input": "a" * 8193}, 400, "at most 8,192"),
                 ("/v1/embeddings", {"input": "a", "output": "sparse"}, 400, "has no sparse embeddings"),
                 ("/v1/embeddings", {"input": "a", "output": "slots"}, 400, "has no slots"),
                 ("/v1/embeddings", {"input": "a", "dimensions": 1 << 70}, 400, "whole number from 1 to 128"),
                 ("/v1/embeddings", {"input": "http://x/y.jpg", "modality": "image"}, 400, "fetches no addresses"),
                 ("/v1/embeddings", {"input": "%", "modality": "image"}, 400, "not valid base64"),
                 ("/v1/embeddings", {"input": base64.b64encode(b"GIF").decode(), "modality": "image"}, 400, "input: "),
                 ("/v1/embeddings", {"input": big, "modality": "image"}, 400, "50000 x 50000"),
                 ("/v1/embeddings", b"[" * 1_000_000, 400, "nested deeper"), ("/v1/search", {"k": 1}, 400, "one of text and image"),
                 ("/v1/search", {"text": "a", "rerank": 3}, 400, "text-conditioned pool"),
                 ("/v1/classify", {"images": self.image(0), "classes": ["a"], "templates": ["b"]}, 400, "templates"),
                 ("/v1/similarity", {"images": self.image(0), "texts": ["a"], "similarity": "conditioned"}, 400, "FLAIR"),
                 ("/v1/nothing", {}, 404, "there is no POST /v1/nothing")]
        for path, body, status, message in cases:
            with self.subTest(message):
                found, answer = self.server.post(path, body)
                self.assertEqual(found, status, answer)
                self.assertIn(message, answer["error"]["message"])
                self.assertNotIn("\n", answer["error"]["message"])
        self.assertEqual(self.server.post("/v1/embeddings", {"input": "a"}, {"Content-Type": "text/plain"})[0], 415)

    def test_metrics_and_health(self):
        self.server.answer("/v1/embeddings", input="a")
        metrics = self.server.get("/metrics").decode()
        self.assertIn('tessera_requests_total{path="/v1/embeddings",status="200"}', metrics)
        self.assertIn("tessera_batch_size_count", metrics)
        self.assertEqual(json.loads(self.server.get("/health")), {"status": "ok"})
        self.assertIn(b"<html", self.server.get("/"))

    def test_requests_at_the_same_time_get_their_own_answers(self):
        alone = {text: self.server.answer("/v1/embeddings", input=text)["data"][0]["embedding"] for text in TEXTS}
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda text: (text, self.server.answer("/v1/embeddings", input=text)["data"][0]["embedding"]), TEXTS * 20))
        for text, embedding in found:
            self.assertLess(max(abs(a - b) for a, b in zip(embedding, alone[text])), 1e-5)

    def test_the_embedding_of_one_token_has_the_same_bits_in_every_batch(self):
        if not PACKS_WEIGHTS:
            self.skipTest("the CPU has no AVX2")
        with serve("--checkpoint", train("cls", self.folder / "cls")) as server:
            for inputs, form in ((TEXTS, {}), ([self.image(i) for i in range(5)], {"modality": "image"})):
                together = [item["embedding"] for item in server.answer("/v1/embeddings", input=inputs, **form)["data"]]
                alone = [server.answer("/v1/embeddings", input=item, **form)["data"][0]["embedding"] for item in inputs]
                self.assertEqual(together, alone)

    def test_bfloat16_equals_tessera_embed_to_the_bit_and_is_close_to_float32(self):
        exact = [item["embedding"] for item in self.server.answer("/v1/embeddings", input=TEXTS)["data"]]
        expected = self.embedded("--texts", self.folder / "texts.txt", "--precision", "bfloat16")
        with serve("--checkpoint", self.run_folder, "--precision", "bfloat16") as server:
            found = [item["embedding"] for item in server.answer("/v1/embeddings", input=TEXTS)["data"]]
        self.assertEqual(b"".join(struct.pack(f"<{len(row)}f", *row) for row in found), expected)
        self.assertNotEqual(found, exact)
        for row, other in zip(found, exact):
            self.assertGreater(sum(a * b for a, b in zip(row, other)), 0.999)

    def test_bad_clients_do_not_disturb_good_ones(self):
        for _ in range(20):
            self.server.answer("/v1/embeddings", input="a red circle")
        before = self.server.resident()
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        with contextlib.ExitStack() as stack:
            for i in range(400):
                client = stack.enter_context(socket.create_connection(("127.0.0.1", self.server.port), timeout=30))
                client.sendall([b"", b"POST /v1/emb", head, head + b'{"input"', b"\x16\x03\x01\x02\x00"][i % 5])
                if i % 4 == 0:
                    client.close()
            for _ in range(20):
                self.server.answer("/v1/embeddings", input="a red circle")
        self.server.answer("/v1/embeddings", input="a red circle")
        self.assertLess(self.server.resident() - before, 200)


class Others(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        for name in ("stair_single", "sparo", "flair"):
            train(name, cls.folder / name)
        (cls.folder / "photos").mkdir()
        for i in range(4):
            (cls.folder / f"photos/{i}.png").write_bytes(noise(i))
        (cls.folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def test_several_models_with_a_token(self):
        (self.folder / "token").write_text("secret\n")
        image = base64.b64encode(noise(2)).decode()
        models = [f"{name}={self.folder / folder}" for name, folder in
                  (("stair", "stair_single"), ("sparo", "sparo"), ("flair", "flair"))]
        with serve("--checkpoint", *models, "--images", self.folder / "photos", "--token-file", self.folder / "token") as server:
            self.assertEqual(server.post("/v1/embeddings", {"input": "a"})[0], 401)
            self.assertEqual(server.post("/v1/embeddings", {"input": "a"}, {"Authorization": "Bearer secre"})[0], 401)
            headers = {"Authorization": "Bearer secret"}

            def answer(path, **body):
                status, found = server.post(path, body, headers)
                self.assertEqual(status, 200, found)
                return found
            self.assertEqual([model["id"] for model in json.loads(server.get("/v1/models", headers))["data"]], ["stair", "sparo", "flair"])

            sparse = answer("/v1/embeddings", input=["a red circle"], output="sparse", top=5)["data"][0]["embedding"]
            self.assertEqual({len(sparse[key]) for key in ("indices", "values", "tokens")}, {5})
            self.assertEqual(sparse["values"], sorted(sparse["values"], reverse=True))
            self.assertEqual(pathlib.Path(answer("/v1/search", image=image, k=1)["results"][0]["key"]).stem, "2")
            explained = answer("/v1/explain", image=image, text="a red circle")
            self.assertEqual(len(explained["image_tokens"]["tokens"]), 32)
            self.assertIn("activations", explained["rule"])

            slots = answer("/v1/embeddings", input=["a red circle"], output="slots", model="sparo")["data"][0]["embedding"]
            self.assertEqual((len(slots), len(slots[0])), (32, 16))
            explained = answer("/v1/explain", image=image, text="a red circle", model="sparo")
            self.assertIn("slots", explained["rule"])
            self.assertEqual({len(slot["weights"]) for slot in explained["slots"]}, {explained["rows"] * explained["columns"]})

            pooled = answer("/v1/similarity", images=[image], texts=TEXTS, model="flair", similarity="conditioned")["similarity"]
            plain = answer("/v1/similarity", images=[image], texts=TEXTS, model="flair")["similarity"]
            self.assertNotEqual(pooled, plain)
            hits = answer("/v1/search", text="a red circle", k=4, rerank=2, model="flair")["results"]
            scores = {pathlib.Path(hit["key"]).stem: hit["score"] for hit in hits[:2]}
            for stem, score in scores.items():
                again = base64.b64encode(noise(int(stem))).decode()
                self.assertAlmostEqual(answer("/v1/similarity", images=[again], texts=["a red circle"], model="flair",
                                              similarity="conditioned")["similarity"][0][0], score, places=5)
            self.assertIn("attention", answer("/v1/explain", image=image, text="a red circle", model="flair")["rule"])
        self.assertEqual(server.process.returncode, 0)
        for line in server.out.splitlines():
            self.assertEqual(set(json.loads(line)), {"time", "client", "method", "path", "status", "bytes", "milliseconds"})
        self.assertNotIn("red circle", server.out)

    def test_embeddings_of_a_file_are_searched(self):
        for name, option, ending in (("flair", "--out", "safetensors"), ("stair_single", "--sparse", "safetensors")):
            file = self.folder / f"{name}.{ending}"
            run(PROGRAMS / "tessera-embed", "--checkpoint", self.folder / name, "--source", self.folder / "photos", option, file)
            for images in ((), ("--images", self.folder / "photos")):
                with serve("--checkpoint", self.folder / name, "--embeddings", file, *images) as server:
                    found = server.answer("/v1/search", image=base64.b64encode(noise(1)).decode(), k=1)
                    self.assertEqual(pathlib.Path(found["results"][0]["key"]).stem, "1")
                    self.assertEqual(found["has_images"], bool(images))
        with self.assertRaisesRegex(AssertionError, "has 4 images, but --images has 100"):
            serve("--checkpoint", self.folder / "flair", "--embeddings", self.folder / "flair.safetensors", "--images",
                   "{name: shapes, split: test, size: 100}")

    def test_a_full_queue_and_the_end(self):
        body = json.dumps({"input": ["a small blue square left of a green triangle"] * 200}).encode()
        with serve("--checkpoint", self.folder / "sparo", "--max-queue", "1", "--quiet", stop=signal.SIGINT) as server:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                found = [status for status, _ in pool.map(lambda _: server.post("/v1/embeddings", body), range(16))]
            self.assertEqual(set(found), {200, 429})
        self.assertEqual((server.process.returncode, server.out), (0, ""))
        with serve("--checkpoint", self.folder / "sparo", "--body-seconds", "1") as server:
            client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            client.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
            answer = b""
            while b"408" not in answer:  # one byte at a time, until the server has had enough
                client.sendall(b" ")
                client.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    answer += client.recv(1000)
            client.close()
            self.assertEqual(server.post("/v1/embeddings", {"input": "a" * 40_000_000})[0], 413)

    def test_files_for_search_engines(self):
        texts, sparo, stair = self.folder / "texts.txt", self.folder / "sparo", self.folder / "stair_single"

        def write(engine, checkpoint, option, *what):
            out = self.folder / engine / f"{checkpoint.name}{option}"
            run(PROGRAMS / "tessera-embed", "--checkpoint", checkpoint, *(what or ("--texts", texts)), option, out, "--to", engine)
            return out
        plain = self.folder / "plain.npy"
        run(PROGRAMS / "tessera-embed", "--checkpoint", sparo, "--texts", texts, "--out", plain)
        content = plain.read_bytes()
        values = content[content.index(b"\n") + 1:]
        rows = [list(struct.unpack("<512f", values[i:i + 2048])) for i in range(0, len(values), 2048)]

        lines = [json.loads(line) for line in write("opensearch", sparo, "--out").read_text().splitlines()]
        self.assertEqual([line["index"]["_id"] for line in lines[::2]], ["0", "1", "2"])
        self.assertEqual([line["text"] for line in lines[1::2]], TEXTS)
        floats = [struct.unpack("<512f", struct.pack("<512f", *line["embedding"])) for line in lines[1::2]]
        self.assertEqual([list(row) for row in floats], rows)
        lines = [json.loads(line) for line in write("elasticsearch", stair, "--sparse").read_text().splitlines()]
        self.assertTrue(all(weight > 0 and "." not in token for line in lines[1::2] for token, weight in line["tokens"].items()))
        milvus = json.loads(write("milvus", stair, "--sparse").read_text())
        self.assertEqual([row["id"] for row in milvus], [0, 1, 2])
        self.assertEqual(len(milvus[0]["tokens"]["indices"]), len(milvus[0]["tokens"]["values"]))
        faiss_file = write("faiss", sparo, "--out")
        header = b"IxFI" + struct.pack("<iqqqBiQ", 512, 3, 1 << 20, 1 << 20, 1, 0, 3 * 512)
        self.assertEqual(faiss_file.read_bytes(), header + values)
        found = subprocess.run([str(PROGRAMS / "tessera-embed"), "--checkpoint", str(stair), "--texts", str(texts), "--sparse", "x", "--to", "faiss"],
                               capture_output=True, text=True)
        self.assertEqual((found.returncode, "no index for sparse embeddings" in found.stderr), (2, True))

        with self.subTest("faiss"):
            try:
                import faiss
                import numpy
            except ImportError as error:
                self.skipTest(str(error))
            index = faiss.read_index(str(faiss_file))
            self.assertEqual(index.search(numpy.array(rows, dtype="float32"), 1)[1].ravel().tolist(), [0, 1, 2])
        with self.subTest("qdrant"):
            try:
                import qdrant_client
            except ImportError as error:
                self.skipTest(str(error))
            self.search_qdrant(qdrant_client, write("qdrant", sparo, "--out"), rows)
            self.search_qdrant(qdrant_client, write("qdrant", stair, "--sparse"), None)
        for package, engine, load in (("opensearchpy", "opensearch", engines.by_opensearch),
                                      ("elasticsearch", "elasticsearch", engines.by_elasticsearch)):
            for checkpoint, option in ((sparo, "--out"), (stair, "--sparse")):
                with self.subTest(f"{engine} {option}"):
                    self.need(package)
                    file = write(engine, checkpoint, option)
                    lines = [json.loads(line) for line in file.read_text().splitlines()]
                    expected = {action["index"]["_id"]: document for action, document in zip(lines[::2], lines[1::2])}
                    for documents in load(file):
                        self.assertEqual(documents, expected)
        for checkpoint, option in ((sparo, "--out"), (stair, "--sparse")):
            with self.subTest(f"milvus {option}"):
                self.need("pymilvus", "milvus_lite")
                file = write("milvus", checkpoint, option)
                vectors = [row.get("tokens") or row["embedding"] for row in json.loads(file.read_text())]
                vectors = [dict(zip(v["indices"], v["values"])) if isinstance(v, dict) else dict(enumerate(v)) for v in vectors]
                found = json.loads(run(sys.executable, engines.__file__, file, self.folder))
                for vector, hits in zip(vectors, found):
                    products = {i: sum(weight * other.get(token, 0) for token, weight in vector.items()) for i, other in enumerate(vectors)}
                    best = sorted(products, key=products.get, reverse=True)
                    self.assertEqual([(i, text) for i, _, text in hits], [(i, TEXTS[i]) for i in best])
                    for i, score, _ in hits:
                        self.assertAlmostEqual(score, products[i], places=5)

    def need(self, *packages):
        """Skips the test if a package is missing."""
        for package in packages:
            if importlib.util.find_spec(package) is None:
                self.skipTest(f"no {package}: scripts/setup.sh --clients")

    def search_qdrant(self, qdrant_client, file, dense):
        """Loads the collection's settings and points into Qdrant's local mode, and searches it with each point's own vector."""
        models = qdrant_client.models
        settings = json.loads(file.with_suffix(".collection.json").read_text())
        client = qdrant_client.QdrantClient(":memory:")
        if dense:
            client.create_collection("c", vectors_config=models.VectorParams.model_validate(settings["vectors"]))
        else:
            client.create_collection("c", vectors_config={}, sparse_vectors_config={
                name: models.SparseVectorParams.model_validate(value) for name, value in settings["sparse_vectors"].items()})
        points = [models.PointStruct.model_validate(point) for line in file.read_text().splitlines() for point in json.loads(line)["points"]]
        client.upsert("c", points)
        for point in points:
            query = point.vector if dense else point.vector["tokens"]
            hits = client.query_points("c", query=query, using=None if dense else "tokens", limit=1).points
            self.assertEqual((hits[0].id, hits[0].payload["text"]), (point.id, point.payload["text"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
