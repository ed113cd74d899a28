"""The raw protobuf classes of google.pubsub.v1: what a server reads and writes, without proto-plus around them."""

from typing import Any

from google.protobuf import duration_pb2, empty_pb2, timestamp_pb2
from google.pubsub_v1 import types

Proto = Any
"""A protobuf message. The generated classes have no types that a checker could read."""

Topic: Proto = types.Topic.pb()
Subscription: Proto = types.Subscription.pb()
Snapshot: Proto = types.Snapshot.pb()

GetTopicRequest: Proto = types.GetTopicRequest.pb()
UpdateTopicRequest: Proto = types.UpdateTopicRequest.pb()
DeleteTopicRequest: Proto = types.DeleteTopicRequest.pb()
ListTopicsRequest: Proto = types.ListTopicsRequest.pb()
ListTopicsResponse: Proto = types.ListTopicsResponse.pb()
ListTopicSubscriptionsRequest: Proto = types.ListTopicSubscriptionsRequest.pb()
ListTopicSubscriptionsResponse: Proto = types.ListTopicSubscriptionsResponse.pb()
ListTopicSnapshotsRequest: Proto = types.ListTopicSnapshotsRequest.pb()
ListTopicSnapshotsResponse: Proto = types.ListTopicSnapshotsResponse.pb()
DetachSubscriptionRequest: Proto = types.DetachSubscriptionRequest.pb()
DetachSubscriptionResponse: Proto = types.DetachSubscriptionResponse.pb()
PublishRequest: Proto = types.PublishRequest.pb()
PublishResponse: Proto = types.PublishResponse.pb()

GetSubscriptionRequest: Proto = types.GetSubscriptionRequest.pb()
UpdateSubscriptionRequest: Proto = types.UpdateSubscriptionRequest.pb()
DeleteSubscriptionRequest: Proto = types.DeleteSubscriptionRequest.pb()
ListSubscriptionsRequest: Proto = types.ListSubscriptionsRequest.pb()
ListSubscriptionsResponse: Proto = types.ListSubscriptionsResponse.pb()
ModifyPushConfigRequest: Proto = types.ModifyPushConfigRequest.pb()
CreateSnapshotRequest: Proto = types.CreateSnapshotRequest.pb()
GetSnapshotRequest: Proto = types.GetSnapshotRequest.pb()
UpdateSnapshotRequest: Proto = types.UpdateSnapshotRequest.pb()
DeleteSnapshotRequest: Proto = types.DeleteSnapshotRequest.pb()
ListSnapshotsRequest: Proto = types.ListSnapshotsRequest.pb()
ListSnapshotsResponse: Proto = types.ListSnapshotsResponse.pb()
SeekRequest: Proto = types.SeekRequest.pb()
SeekResponse: Proto = types.SeekResponse.pb()
PullRequest: Proto = types.PullRequest.pb()
PullResponse: Proto = types.PullResponse.pb()
StreamingPullRequest: Proto = types.StreamingPullRequest.pb()
StreamingPullResponse: Proto = types.StreamingPullResponse.pb()
AcknowledgeRequest: Proto = types.AcknowledgeRequest.pb()
ModifyAckDeadlineRequest: Proto = types.ModifyAckDeadlineRequest.pb()

ListSchemasRequest: Proto = types.ListSchemasRequest.pb()
ListSchemasResponse: Proto = types.ListSchemasResponse.pb()

Empty: Proto = empty_pb2.Empty
Duration: Proto = duration_pb2.Duration
Timestamp: Proto = timestamp_pb2.Timestamp
