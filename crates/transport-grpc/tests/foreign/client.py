"""Calls the edge with the gRPC of another language: what it knows of the services it learns by reflection.

Arguments: the edge's address. Prints a line for each thing that works, and fails at the first that does not.
"""

import sys
import threading
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

PATIENCE = 60


def done(what):
    print("ok", what, flush=True)


def failing(call):
    """The error a call must end with."""
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call succeeded")


def main(address):
    with grpc.insecure_channel(address) as channel:
        reflection = ProtoReflectionDescriptorDatabase(channel)
        services = reflection.get_services()
        assert "edge.test.Echo" in services, services
        pool = descriptor_pool.DescriptorPool(reflection)
        service = pool.FindServiceByName("edge.test.Echo")
        done("reflection")

        def method(name):
            found = service.methods_by_name[name]
            if found.client_streaming:
                make = channel.stream_stream if found.server_streaming else channel.stream_unary
            else:
                make = channel.unary_stream if found.server_streaming else channel.unary_unary
            reply = message_factory.GetMessageClass(found.output_type)
            return make(
                f"/{service.full_name}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=reply.FromString,
            )

        text = message_factory.GetMessageClass(pool.FindMessageTypeByName("edge.test.Text"))
        number = message_factory.GetMessageClass(pool.FindMessageTypeByName("edge.test.Number"))

        assert method("Say")(text(text="größe"), timeout=PATIENCE).text == "GRÖSSE"
        done("unary")

        counted = [reply.text for reply in method("Count")(number(number=300), timeout=PATIENCE)]
        assert counted == [str(count) for count in range(1, 301)], counted
        done("server streaming")

        words = (text(text=f"{count} ") for count in range(1000))
        gathered = method("Gather")(words, timeout=PATIENCE).text
        assert gathered == "".join(f"{count} " for count in range(1000)), gathered
        done("client streaming")

        turn = threading.Semaphore(1)

        def in_turn():
            for word in ("one", "two", "three"):
                turn.acquire()
                yield text(text=word)

        said = []
        for reply in method("Talk")(in_turn(), timeout=PATIENCE):
            said.append(reply.text)
            turn.release()
        assert said == ["ONE", "TWO", "THREE"], said
        done("both directions")

        metadata = (("tenant", "shop"), ("token-bin", b"\x00\xff"))
        seen = method("Metadata")(text(), timeout=PATIENCE, metadata=metadata).text
        assert sorted(seen.splitlines()) == ["tenant=shop", r"token-bin=\x00\xff"], seen
        done("metadata")

        def waits(timeout=PATIENCE):
            """Tasks of the server that began to wait, those of them that ended, and the time left of this call."""
            return [int(number) for number in method("Waits")(text(), timeout=timeout).text.split()]

        def until(holds):
            patient = time.monotonic() + PATIENCE
            while not holds(*waits()[:2]):
                assert time.monotonic() < patient, waits()

        # Without a deadline of the client's it would be 10 s. This one rounds its own up.
        left = waits(timeout=9)[2]
        assert 1_000 < left < 9_500, left
        # On a host with too much to do a call may be over before its task has begun.
        for milliseconds in (200, 2_000, 20_000):
            # The header alone: a client that has no timeout of its own leaves the end to the server.
            timeout = (("grpc-timeout", f"{milliseconds}m"),)
            error = failing(lambda: method("Wait")(text(), metadata=timeout))
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
            if waits()[0] > 0:
                break
        until(lambda begun, ended: begun == ended > 0)
        error = failing(lambda: method("Wait")(text(), timeout=0.2))
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
        done("deadline exceeded")

        unknown = channel.unary_unary(f"/{service.full_name}/Shout")
        error = failing(lambda: unknown(b"", timeout=PATIENCE))
        assert error.code() == grpc.StatusCode.UNIMPLEMENTED, error
        done("unknown method")

        error = failing(lambda: method("Fail")(number(number=9), timeout=PATIENCE))
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
        assert error.details() == "as you like — gern", error
        trailers = dict(error.trailing_metadata())
        assert trailers["grpc-status-details-bin"] == b"\x08\x05", trailers
        assert trailers["convoke-executed"] == "yes", trailers
        done("status with details")

        error = failing(lambda: method("Twice")(text(text="a"), timeout=PATIENCE))
        assert error.code() == grpc.StatusCode.INTERNAL, error
        assert "write `returns (stream Text)`" in error.details(), error
        done("a second reply is an error")

        replies = method("Spread")(text(text="a"), timeout=PATIENCE)
        got = []
        error = failing(lambda: got.extend(reply.text for reply in replies))
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        assert "convoke-failure" in dict(error.trailing_metadata()), error
        done("partial failure")

        error = failing(lambda: method("Say")(text(text="x" * (5 << 20)), timeout=PATIENCE))
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
        done("message too large")

        until(lambda begun, ended: begun == ended)
        before = waits()[0]
        # Its deadline is far: while this client is connected only the reset ends the task.
        waiting = method("Wait").future(text(), timeout=60 * PATIENCE)
        until(lambda begun, _: begun > before)
        waiting.cancel()
        assert waiting.cancelled()
        until(lambda begun, ended: begun == ended)
        done("cancellation")

        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "edge.test.Echo"):
            reply = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING, reply
        error = failing(lambda: health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=PATIENCE))
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
        done("health")


if __name__ == "__main__":
    main(sys.argv[1])
