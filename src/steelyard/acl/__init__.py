"""Access control lists: who may do what with which resource, by Kafka's rules.

A pure room of both dialects: `bindings` are the rules as they are stored, listed and deleted,
`rules` answers questions about them.
Source: metadata/authorizer/StandardAuthorizerData.java.
"""
