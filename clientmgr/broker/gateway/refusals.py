"""How the gateway refuses a call: a gRPC status in Google's words, with the details that a client's retry reads."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import grpc
import psycopg
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

SUBSCRIPTION_GONE = "CM404"  # SQLSTATE of clientmgr.gateway_lock
RESOURCE_NAMES = "https://cloud.google.com/pubsub/docs/pubsub-basics#resource_names"


class Refusal(Exception):
    """Ends a call with a status."""

    def __init__(self, code: grpc.StatusCode, message: str, ack_errors: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.ack_errors = dict(ack_errors or {})

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """The failures by acknowledgement id, where clients of exactly-once subscriptions look for them."""
        if not self.ack_errors:
            return ()
        detail: Any = any_pb2.Any()
        detail.Pack(
            error_details_pb2.ErrorInfo(
                reason="EXACTLY_ONCE_ACKID_FAILURE", domain="pubsub.googleapis.com", metadata=self.ack_errors
            )
        )
        status = status_pb2.Status(code=self.code.value[0], message=self.message, details=[detail])
        return (("grpc-status-details-bin", status.SerializeToString()),)


def invalid(message: str) -> Refusal:
    return Refusal(grpc.StatusCode.INVALID_ARGUMENT, message)


def invalid_name(name: str) -> Refusal:
    return invalid(f"Invalid resource name given (name={name}). Refer to {RESOURCE_NAMES} for more information.")


def not_found(name: str) -> Refusal:
    return Refusal(grpc.StatusCode.NOT_FOUND, f"Resource not found (resource={name.rpartition('/')[2]}).")


@contextlib.contextmanager
def not_found_when_gone(subscription: str) -> Iterator[None]:
    """Refuse with NOT_FOUND when the database says that the subscription does not exist, or no longer."""
    try:
        yield
    except psycopg.DatabaseError as error:
        if error.sqlstate == SUBSCRIPTION_GONE:
            raise not_found(subscription) from None
        raise


def already_exists(name: str) -> Refusal:
    return Refusal(
        grpc.StatusCode.ALREADY_EXISTS, f"Resource already exists in the project (resource={name.rpartition('/')[2]})."
    )


def not_possible_now(message: str) -> Refusal:
    return Refusal(grpc.StatusCode.FAILED_PRECONDITION, message)


def unauthenticated(message: str) -> Refusal:
    return Refusal(grpc.StatusCode.UNAUTHENTICATED, message)


def denied(identity: str, right: str, resource: str) -> Refusal:
    return Refusal(grpc.StatusCode.PERMISSION_DENIED, f"{identity} lacks the right: {right} does not cover {resource}.")


def exhausted(message: str) -> Refusal:
    return Refusal(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def unimplemented(what: str) -> Refusal:
    return Refusal(grpc.StatusCode.UNIMPLEMENTED, f"{what} is not supported by this Pub/Sub gateway.")
