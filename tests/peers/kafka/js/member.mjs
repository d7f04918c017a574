// One member of a consumer group, of kafkajs; the arguments, commands and events are told in members.py.
import { createInterface } from 'node:readline'
import { writeSync } from 'node:fs'
import kafkajs from 'kafkajs'

const { Kafka, PartitionAssigners, AssignerProtocol, logLevel } = kafkajs

const options = Object.fromEntries(process.argv.slice(2).map((argument) => {
  const end = argument.indexOf('=')
  return [argument.slice(0, end), argument.slice(end + 1)]
}))

const emit = (event, fields = {}) => writeSync(1, JSON.stringify({ event, ...fields }) + '\n')

const names = (assignment) => Object.entries(assignment)
  .flatMap(([topic, partitions]) => partitions.map((partition) => `${topic}-${partition}`))

// kafkajs brings round robin alone, and calls it RoundRobinAssigner; this is Kafka's range.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol: ({ topics }) => ({
    name: 'range',
    metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) })
  }),
  assign: async ({ members }) => {
    const subscribed = members.map(({ memberId, memberMetadata }) =>
      ({ memberId, topics: AssignerProtocol.MemberMetadata.decode(memberMetadata).topics }))
    const shares = Object.fromEntries(members.map(({ memberId }) => [memberId, {}]))
    for (const topic of new Set(subscribed.flatMap(({ topics }) => topics))) {
      await cluster.addTargetTopic(topic)
      const partitions = cluster.findTopicPartitionMetadata(topic)
        .map(({ partitionId }) => partitionId).sort((a, b) => a - b)
      const readers = subscribed.filter(({ topics }) => topics.includes(topic))
        .map(({ memberId }) => memberId).sort()
      readers.forEach((reader, place) => {
        const least = Math.floor(partitions.length / readers.length)
        const larger = partitions.length % readers.length
        const first = place * least + Math.min(place, larger)
        shares[reader][topic] = partitions.slice(first, first + least + (place < larger ? 1 : 0))
      })
    }
    return Object.entries(shares).map(([memberId, assignment]) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment, userData: Buffer.alloc(0) })
    }))
  }
})

const kafka = new Kafka({
  clientId: options.client,
  brokers: options.bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100 }
})
const consumer = kafka.consumer({
  groupId: options.group,
  partitionAssigners: [options.assignor === 'range' ? range : PartitionAssigners.roundRobin],
  sessionTimeout: Number(options.session_ms),
  rebalanceTimeout: Number(options.poll_ms),
  heartbeatInterval: Number(options.heartbeat_ms),
  metadataMaxAge: Number(options.refresh_ms),
  maxWaitTimeInMs: 200,
  retry: { initialRetryTime: 100, retries: 20 }
})

let held = []
const release = () => {
  if (held.length) emit('revoked', { partitions: held })
  held = []
}
const { GROUP_JOIN, REBALANCING, COMMIT_OFFSETS, CRASH } = consumer.events
consumer.on(REBALANCING, release)
consumer.on(GROUP_JOIN, ({ payload }) => {
  release()
  held = names(payload.memberAssignment)
  emit('assigned', { partitions: held })
})
consumer.on(COMMIT_OFFSETS, () => emit('committed'))
consumer.on(CRASH, ({ payload }) => emit('error', { error: String(payload.error), fatal: !payload.restart }))

const leave = async () => {
  await consumer.disconnect()
  release()
  emit('left')
  process.exit(0)
}

await consumer.connect()
await consumer.subscribe({
  topics: options.pattern ? [new RegExp(options.pattern)] : options.topics.split(','),
  fromBeginning: true
})
await consumer.run({
  autoCommitThreshold: 1,
  eachMessage: async ({ topic, partition, message }) => emit('record', {
    partition: `${topic}-${partition}`, offset: Number(message.offset), value: message.value.toString()
  })
})

createInterface({ input: process.stdin }).on('line', leave).on('close', leave)
